// ddpctl checkpoint: what it shows of a file, and its exit codes.

#include "ctl/checkpoint.hpp"

#include "common/word_hash.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using Catch::Contains;

namespace {

/// Returns a checkpoint of two tensors, whose data are "12345678" and "abc".
std::string whole_file() {
    const std::vector<checkpoint::Tensor> tensors{{"fc1\x1b[31m", "F32", {2, 1}, 0, 8}, {"bias", "U8", {3}, 8, 3}};
    const std::string data = "12345678abc";
    std::vector<std::uint64_t> hashes;
    for (const checkpoint::Chunk& chunk : checkpoint::chunks_of(tensors)) {
        WordHash64 hash;
        hash.add(std::as_bytes(std::span(data).subspan(chunk.begin, chunk.bytes)));
        hashes.push_back(hash.value());
    }
    return checkpoint::encode_checkpoint({200, 8, 1}, tensors, hashes) + data;
}

int code_of(const TemporaryDirectory& directory, const std::string& contents) {
    const auto path = directory.path() / "file";
    write_file(path, contents);
    return ctl::run_checkpoint({path.string()});
}

}  // namespace

TEST_CASE("ddpctl checkpoint lists the tensors of a file", "[ctl]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "file", whole_file());
    const auto file = checkpoint::open_checkpoint(directory.path() / "file");
    REQUIRE(file.has_value());
    CHECK(ctl::checkpoint_text(*file) ==
          "step 200, saved by 8 ranks, format version 3: 2 tensors, 11 bytes\n"
          "F32                 8 bytes  fc1\\x1b[31m [2,1]\n"
          "U8                  3 bytes  bias [3]\n");
}

TEST_CASE("ddpctl checkpoint ends with 0 for a whole file, 1 for a damaged one and 2 without one", "[ctl]") {
    const TemporaryDirectory directory;
    const std::string whole = whole_file();
    CHECK(code_of(directory, whole) == 0);
    std::string damaged = whole;
    damaged.back() ^= 1;
    CHECK(code_of(directory, damaged) == 1);
    CHECK(code_of(directory, whole.substr(0, whole.size() - 1)) == 1);
    CHECK(code_of(directory, "") == 1);
    CHECK(code_of(directory, checkpoint::encode({{}, {{"a", "U8", {1}, 0, 1}}}) + "x") == 0);  // of another program
    CHECK(ctl::run_checkpoint({directory.path() / "absent"}) == 2);
    CHECK(ctl::run_checkpoint({directory.path()}) == 1);
}

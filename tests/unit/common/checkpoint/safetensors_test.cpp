// The safetensors format: what is written is read by any JSON parser, and everything else is refused with a reason.

#include "common/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "common/checkpoint/checksums.hpp"
#include "common/word_hash.hpp"
#include "tests/catch.hpp"

using namespace ddprun::checkpoint;
using Catch::Contains;

namespace {

std::string json_in(const std::string& file) { return file.substr(kLengthBytes); }

std::string error_of(std::string_view json, std::uint64_t data_bytes = 8) {
    const auto header = decode(json, data_bytes);
    if (header) return "accepted";
    CHECK(header.error().code == ddprun::Errc::kMalformed);
    return header.error().message;
}

std::string with_tensor(const std::string& body) { return R"({"a":{)" + body + "}}"; }

const std::vector<Tensor> kTensors{{"w", "F32", {2, 3}, 0, 24},
                                   {"s", "F64", {}, 24, 8},
                                   {"e", "BF16", {0, 4}, 32, 0},
                                   {"quote \" slash \\ ö", "U8", {3}, 32, 3}};

}  // namespace

TEST_CASE("a header is read as it was written, and its data begins at a page", "[checkpoint]") {
    const Header header{.metadata = {{"format", "pt"}, {"line", "a\nb"}}, .tensors = kTensors};
    const std::string file = encode(header);
    CHECK(file.size() == kPageBytes);
    const auto length = json_bytes(file, file.size() + 35);
    REQUIRE(length.has_value());
    CHECK(*length == file.size() - kLengthBytes);
    const auto read = decode(json_in(file), 35);
    REQUIRE(read.has_value());
    CHECK(*read == header);
    const auto json = boost::json::parse(json_in(file)).as_object();  // another parser
    CHECK(json.size() == 5);
    CHECK(json.at("quote \" slash \\ ö").at("data_offsets") == boost::json::array{32, 35});
    CHECK(json.at("__metadata__").at("line") == "a\nb");
    CHECK(decode("{}", 0)->tensors.empty());
}

TEST_CASE("escapes, white space and keys in another order are read", "[checkpoint]") {
    const auto header = decode(R"({ "a\u00f6\ud83d\ude00\n\/" : {"data_offsets":[0 , 8],"shape":[ 1,2 ],)"
                               "\n\t\"dtype\":\"F32\"} }  ",
                               8);
    REQUIRE(header.has_value());
    CHECK(header->tensors == std::vector<Tensor>{{"aö😀\n/", "F32", {1, 2}, 0, 8}});
}

TEST_CASE("headers that do not follow the format are refused with the reason", "[checkpoint]") {
    const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
    CHECK(error_of(with_tensor(good)) == "accepted");
    for (const auto& [json, words] : std::vector<std::pair<std::string, std::string>>{
             {"", "does not begin with '{'"},
             {" {}", "does not begin with '{'"},
             {"{", "expected a string"},
             {"{}x", "expected the end"},
             {with_tensor(good) + "{", "expected the end"},
             {R"({"a":1})", "expected '{'"},
             {R"({"a":{)" + good + R"(},"a":{)" + good + "}}", "a duplicate name"},
             {with_tensor(good + R"(,"shape":[2])"), "a duplicate key"},
             {with_tensor(good + R"(,"more":1)"), "a key that tensors do not have"},
             {with_tensor(R"("dtype":"F32","shape":[2])"), "a tensor without dtype, shape or data_offsets"},
             {with_tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "expected a whole number"},
             {with_tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "expected ']'"},
             {with_tensor(R"("dtype":"F32","shape":[02],"data_offsets":[0,8])"), "expected a whole number"},
             {with_tensor(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])"), "below 2^64"},
             {with_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "not a beginning and an end"},
             {with_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "not a beginning and an end"},
             {R"({"__metadata__":{"a":1}})", "expected a string"},
             {R"({"__metadata__":{"a":"","a":""}})", "a duplicate key"},
             {R"({"\ud800":{)" + good + "}}", "an unpaired surrogate"},
             {R"({"\udc00":{)" + good + "}}", "an unpaired surrogate"},
             {R"({"\x":{)" + good + "}}", "an unknown escape"},
             {R"({"\u12":{)" + good + "}}", "four hexadecimal digits"},
             {"{\"a\n\":{" + good + "}}", "a control character"},
             {"{\"\xff\":{" + good + "}}", "not UTF-8"},
             {R"({"a)", "a string without an end"}}) {
        CAPTURE(json);
        CHECK_THAT(error_of(json), Contains(words));
    }
}

TEST_CASE("tensors that overlap, leave gaps or have other sizes are refused by name", "[checkpoint]") {
    const auto error = [](const std::string& shape, int begin, int end, const std::string& dtype = "F32") {
        return error_of(with_tensor(R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
                                    std::to_string(begin) + "," + std::to_string(end) + "]"));
    };
    CHECK(error("[3]", 0, 8) == "tensor 'a': its shape has 12 bytes, its data_offsets 8");
    CHECK(error("[2]", 0, 8, "F3") == "tensor 'a': its type 'F3' is not known");
    CHECK(error("[4294967296,4294967296,4]", 0, 8) == "tensor 'a': its shape is too large");
    CHECK(error("[1]", 4, 8) == "tensor 'a' begins at byte 4 of the data instead of 0");
    CHECK(error("[3]", 0, 12) == "tensor 'a' ends at byte 12 of the data, of which there are 8");
    CHECK(error("[1]", 0, 4) == "it has 8 bytes of data, its tensors 4");
    const std::string two = R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)";
    CHECK(error_of(two + R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})") ==
          "tensor 'b' begins at byte 4 of the data instead of 5");
    CHECK(error_of(two + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})") ==
          "tensor 'b' begins at byte 6 of the data instead of 5");
}

TEST_CASE("a length that the file does not have is refused before memory is taken", "[checkpoint]") {
    const auto error = [](std::uint64_t length, std::uint64_t file_bytes) {
        const std::string first(reinterpret_cast<const char*>(&length), sizeof length);
        const auto bytes = json_bytes(first, file_bytes);
        return bytes ? "accepted" : bytes.error().message;
    };
    CHECK(error(92, 100) == "accepted");
    CHECK(error(93, 100) == "it does not begin like a safetensors file");
    CHECK(error(1, 100) == "it does not begin like a safetensors file");
    CHECK(error(kMaxHeaderBytes + 1, 1u << 30) == "it does not begin like a safetensors file");
    CHECK(error(~std::uint64_t{0}, ~std::uint64_t{0}) == "it does not begin like a safetensors file");
    CHECK_FALSE(json_bytes("short", 100).has_value());
}

TEST_CASE("chunks end at the ends of tensors and of blocks", "[checkpoint]") {
    const std::vector<Tensor> tensors{
        {"a", "U8", {10}, 0, 10}, {"b", "U8", {0}, 10, 0}, {"c", "U8", {2 * kBlockBytes}, 10, 2 * kBlockBytes}};
    CHECK(chunks_of(tensors) == std::vector<Chunk>{{0, 0, 10, 0},
                                                   {2, 10, kBlockBytes - 10, 0},
                                                   {2, kBlockBytes, kBlockBytes, 0},
                                                   {2, 2 * kBlockBytes, 10, 0}});
}

TEST_CASE("a sparse file of many chunks is refused before memory is taken for them", "[checkpoint]") {
    const std::size_t bytes = std::size_t{1} << 60;  // whose chunks would be larger than any memory
    Header header = *decode(json_in(encode_checkpoint({}, kTensors, {})), 35);
    header.tensors = {{"a", "U8", {bytes}, 0, bytes}};
    const std::string text = encode(header);
    const std::string zeros = R"("ddp.header_hash":")";
    ddprun::WordHash64 hash;
    std::string file = text;
    file.replace(file.find(zeros) + zeros.size(), 16, 16, '0');
    hash.add(std::as_bytes(std::span(file)));
    file.replace(file.find(zeros) + zeros.size(), 16, fmt::format("{:016x}", hash.value()));
    const auto found = checksums_of(*decode(json_in(file), bytes), file);
    CHECK(found.error().message == "its header is damaged: 3 checksums for 1099511627776 chunks");
}

TEST_CASE("the checksums in a header are read, and damage to it is found", "[checkpoint]") {
    const SaveFacts facts{200, 8, 3};
    const std::vector<std::uint64_t> hashes{1, 2, 0xfedcba9876543210};
    const std::string file = encode_checkpoint(facts, kTensors, hashes);
    CHECK(encode_checkpoint(facts, kTensors, {}).size() == file.size());
    const auto header = decode(json_in(file), 35);
    REQUIRE(header.has_value());
    REQUIRE(has_checksums(*header));
    const auto found = checksums_of(*header, file);
    REQUIRE(found.has_value());
    CHECK(found->facts == facts);
    REQUIRE(found->chunks.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(found->chunks[i].hash == hashes[i]);

    for (std::size_t at = kLengthBytes; at < file.size(); at += at < 2048 ? 1 : 997) {
        std::string damaged = file;
        damaged[at] ^= 1;
        const auto other = decode(json_in(damaged), 35);
        if (!other) continue;
        CAPTURE(at);
        CHECK_FALSE((has_checksums(*other) && checksums_of(*other, damaged)));
    }
    std::string later = file;
    later.replace(later.find(R"("ddp.version":"3")"), 17, R"("ddp.version":"4")");
    const auto unknown = checksums_of(*decode(json_in(later), 35), later);
    CHECK(unknown.error().code == ddprun::Errc::kMismatch);
    CHECK(unknown.error().message ==
          "it is a checkpoint of version 4, and this program reads versions up to 3. Update the program");
}

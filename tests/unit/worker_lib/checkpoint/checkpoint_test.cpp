#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/checkpoint/old_file.hpp"
#include "tests/unit/worker_lib/support/child.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/checkpoint/file.hpp"
#include "worker_lib/src/checkpoint/save.hpp"

using Catch::Contains;
using ddp::Checkpointer;
using ddp::Context;
using ddp::NamedBuffer;
using ddp::detail::find_damage;
using ddp::testing::in_child;
using ddp::testing::LocalWorld;
using ddp::testing::mount_tmpfs;
using ddp::testing::run_ranks;
using ddp::testing::try_ranks;
using Names = std::set<std::string>;

namespace {

/// A model of two tensors, and an empty one.
struct State {
    explicit State(float start = 0) {
        for (float& weight : weights) weight = start++;
        steps = static_cast<std::int64_t>(start);
    }
    std::vector<NamedBuffer> buffers() {
        return {{"weights of the model", ddp::Buffer(weights)}, {"steps", ddp::Buffer(steps)}, {"nothing", {}}};
    }
    bool operator==(const State&) const = default;
    std::vector<float> weights = std::vector<float>(1001);
    std::int64_t steps = 0;
};

void save_steps(const std::filesystem::path& directory, std::vector<std::uint64_t> steps, int keep = 100) {
    run_ranks({}, [&](Context& context) {
        Checkpointer checkpointer(directory, context, {.keep = keep});
        for (const auto step : steps) {
            State state(static_cast<float>(step));
            checkpointer.save(step, state.buffers());
        }
    });
}

std::optional<std::uint64_t> latest(const std::filesystem::path& directory) {
    return run_ranks({}, [&](Context& context) { return Checkpointer(directory, context).latest(); }).front();
}

std::string error_of_saving(const std::filesystem::path& directory) {
    return try_ranks({},
                     [&](Context& context) {
                         Checkpointer checkpointer(directory, context);
                         std::vector<char> large(3'000'000);
                         checkpointer.save(
                             200, std::vector<NamedBuffer>{{"large", {large.data(), large.size(), ddp::DType::I8}}});
                     })
        .front()
        .text();
}

}  // namespace

TEST_CASE("every rank gets back what the ranks saved", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "made" / "on the way";
    const LocalWorld world{.ranks_per_node = {2, 1}};
    run_ranks(world, [&](Context& context) {
        Checkpointer checkpointer(path, context);
        State state(3);
        checkpointer.save(12, state.buffers());
    });
    const auto right = run_ranks(world, [&](Context& context) {
        Checkpointer checkpointer(path, context);
        const auto step = checkpointer.latest();
        State state;
        checkpointer.load(step.value_or(0), state.buffers());
        return step == 12 && state == State(3);
    });
    CHECK(right == std::vector<bool>{true, true, true});
}

TEST_CASE("a checkpoint is a safetensors file whose data begins at a page", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {7});
    const std::string contents = read_file(directory.path() / "step-7.safetensors");
    CHECK_THAT(contents.substr(8),
               Catch::StartsWith(R"({"__metadata__":{)") &&
                   Contains(R"("ddp.step":"7","ddp.version":"3","ddp.world_size":"1","format":"pt")"));
    CHECK_THAT(contents,
               Contains(R"("steps":{"dtype":"I64","shape":[1],"data_offsets":[0,8]})") &&
                   Contains(R"("weights of the model":{"dtype":"F32","shape":[1001],"data_offsets":[8,4012]})") &&
                   Contains(R"("nothing":{"dtype":"F32","shape":[0],"data_offsets":[4012,4012]})"));
    CHECK(contents.size() == 65536 + 4012);
}

TEST_CASE("files of versions 1 and 2 are loaded, their damage found, and removed when they are old", "[checkpoint]") {
    const TemporaryDirectory directory;
    const int version = GENERATE(1, 2);
    save_steps(directory.path(), {6});
    const auto path = directory.path() / "step-9.ckpt";
    State saved(5);
    const std::string whole = ddp::testing::old_checkpoint(version, 9, saved.buffers());
    write_file(path, whole);
    CHECK(find_damage(path, 9) == "");
    CHECK(latest(directory.path()) == 9);
    const auto same = run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        State loaded;
        Checkpointer(directory.path(), context).load(9, loaded.buffers());
        return loaded == saved;
    });
    CHECK(same == std::vector{true, true});
    std::string damaged = whole;
    damaged[whole.size() - 1000] ^= 1;
    write_file(path, damaged);
    CHECK(find_damage(path, 9) == "the checksum of 'weights of the model' is wrong");
    write_file(path, whole.substr(0, whole.size() - 1));
    CHECK_THAT(find_damage(path, 9), Contains("bytes instead of"));
    write_file(path, "ddp-checkpoint 3" + whole.substr(16));
    CHECK(find_damage(path, 9) == "it does not begin like a safetensors file");
    CHECK(latest(directory.path()) == 6);
    save_steps(directory.path(), {9}, 2);
    CHECK(directory.names() == Names{"step-6.safetensors", "step-9.safetensors"});
    CHECK(latest(directory.path()) == 9);
    save_steps(directory.path(), {10, 11}, 2);
    CHECK(directory.names() == Names{"step-10.safetensors", "step-11.safetensors"});
}

TEST_CASE("without a checkpoint there is none, and other files do not count", "[checkpoint]") {
    const TemporaryDirectory directory;
    for (const char* name : {"step-.safetensors", "step-1x.safetensors", "step-1.safetensors.old", "notes",
                             "step--1.safetensors", "step-99999999999999999999.safetensors"}) {
        write_file(directory.path() / name, "x");
    }
    CHECK_FALSE(latest(directory.path()));
    CHECK(directory.names().size() == 6);
}

TEST_CASE("the newest checkpoints are kept, by number and not by name", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2, 8, 9, 10, 100}, 3);
    CHECK(directory.names() == Names{"step-9.safetensors", "step-10.safetensors", "step-100.safetensors"});
    CHECK(latest(directory.path()) == 100);
}

TEST_CASE("a save replaces a checkpoint of the same step", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {5});
    write_file(directory.path() / "step-5.safetensors", "rubbish");
    save_steps(directory.path(), {5});
    CHECK(latest(directory.path()) == 5);
}

TEST_CASE("files of other programs and of newer versions are skipped, and no error advises to remove them",
          "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {1, 2});
    const auto path = directory.path() / "step-2.safetensors";
    std::string contents = read_file(path);
    write_file(directory.path() / "step-0007.safetensors", contents);  // a name that no Checkpointer gives
    CHECK(latest(directory.path()) == 2);
    const bool newer = GENERATE(false, true);
    const std::string key = newer ? R"("ddp.version":"3")" : R"("ddp.version")";
    contents.replace(contents.find(key), key.size(), newer ? R"("ddp.version":"4")" : R"("ddx.version")");
    write_file(path, contents);
    CHECK(latest(directory.path()) == 1);
    const std::string error = try_ranks({},
                                        [&](Context& context) {
                                            State state;
                                            Checkpointer(directory.path(), context).load(2, state.buffers());
                                        })
                                  .front()
                                  .text();
    CHECK_THAT(error, Contains(newer ? "Update the program" : "no Checkpointer has written it"));
    CHECK_THAT(error, !Contains("Remove it"));
    save_steps(directory.path(), {8}, 1);
    CHECK(directory.names() == Names{"step-0007.safetensors", "step-8.safetensors"});
}

TEST_CASE("a state whose header would be too large for other readers is refused", "[checkpoint]") {
    const TemporaryDirectory directory;
    float value = 0;
    const std::vector<ddp::NamedShard> state{{std::string(100'000'000, 'x'), {1}, 0, ddp::Buffer(value)}};
    try {
        const ddp::detail::Save save(directory.path() / "step-1.safetensors", {}, state, 0);
        FAIL("accepted");
    } catch (const ddp::Error& error) {
        CHECK(error.code() == ddp::ErrorCode::InvalidArgument);
        CHECK_THAT(error.what(), Contains("safetensors allows 100000000. Pass fewer tensors"));
    }
    CHECK(directory.names().empty());
}

TEST_CASE("control characters in the names of a file are escaped in errors", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2});
    State saved(5);
    const std::vector<NamedBuffer> buffers{{"a\x1b[2Jb", ddp::Buffer(saved.steps)}};
    write_file(directory.path() / "step-9.ckpt", ddp::testing::old_checkpoint(2, 9, buffers));
    const std::string error =
        try_ranks(
            {}, [&](Context& context) { Checkpointer(directory.path(), context).load(9, std::vector<NamedBuffer>{}); })
            .front()
            .text();
    CHECK_THAT(error, Contains("'a\\x1b[2Jb'") && !Contains("\x1b"));
}

TEST_CASE("a damaged file is skipped", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {1, 2});
    const std::string whole = read_file(directory.path() / "step-2.safetensors");
    write_file(directory.path() / "step-2.safetensors", whole.substr(0, whole.size() / 2));
    CHECK(latest(directory.path()) == 1);
    write_file(directory.path() / "step-2.safetensors", whole);
    CHECK(latest(directory.path()) == 2);
}

TEST_CASE("what is no file in the place of a checkpoint is skipped", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {1});
    const auto path = directory.path() / "step-2.safetensors";
    SECTION("a named pipe") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
    SECTION("a directory") { REQUIRE(std::filesystem::create_directory(path)); }
    SECTION("a link to nothing") { std::filesystem::create_symlink("absent", path); }
    CHECK_THAT(find_damage(path, 2), Contains("regular file") || Contains("does not exist"));
    CHECK(latest(directory.path()) == 1);
}

TEST_CASE("a file that was cut off anywhere, grew or was renamed counts as damaged", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2});
    const auto path = directory.path() / "step-2.safetensors";
    const std::string whole = read_file(path);
    CHECK(find_damage(path, 2).empty());
    CHECK(find_damage(path, 3) == "it is of step 2");
    for (std::size_t length = 0; length < whole.size(); length += length < 1024 ? 13 : 331) {
        CAPTURE(length);
        write_file(path, whole.substr(0, length));
        CHECK_FALSE(find_damage(path, 2).empty());
    }
    write_file(path, whole.substr(0, whole.size() - 1));
    CHECK(find_damage(path, 2) ==
          "tensor 'weights of the model' ends at byte 4012 of the data, of which there are 4011");
    write_file(path, whole + "x");
    CHECK(find_damage(path, 2) == "it has 4013 bytes of data, its tensors 4012");
}

TEST_CASE("one wrong bit in head or tensors is noticed", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2});
    const auto path = directory.path() / "step-2.safetensors";
    const std::string whole = read_file(path);
    for (std::size_t position = 0; position < whole.size(); position += position < 1024 ? 1 : 197) {
        std::string damaged = whole;
        damaged[position] = static_cast<char>(damaged[position] ^ 4);
        write_file(path, damaged);
        CAPTURE(position);
        CHECK_FALSE(find_damage(path, 2).empty());
    }
}

TEST_CASE("a file damaged between finding and loading is refused with the tensor's name", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2});
    std::string contents = read_file(directory.path() / "step-2.safetensors");
    contents[contents.size() - 4000] ^= 1;
    write_file(directory.path() / "step-2.safetensors", contents);
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        State state;
        Checkpointer(directory.path(), context).load(2, state.buffers());
    });
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.text(), Contains("step-2.safetensors") && Contains("checksum of 'weights of the model'"));
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Io);
    }
}

TEST_CASE("loading a step that is not there says so on every rank", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        State state;
        Checkpointer(directory.path(), context).load(3, state.buffers());
    });
    for (const auto& outcome : outcomes)
        CHECK_THAT(outcome.text(), Contains("step-3.safetensors") && Contains("No such file"));
}

TEST_CASE("a checkpoint of another model is refused with the first difference", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {2});
    const auto error_of_loading = [&](std::vector<NamedBuffer> state) {
        return try_ranks({.ranks_per_node = {2}},
                         [&](Context& context) { Checkpointer(directory.path(), context).load(2, state); })
            .back()
            .ddp_error();
    };
    State state;
    auto renamed = state.buffers();
    renamed[1].name = "epochs";
    auto smaller = state.buffers();
    smaller[0].buffer.count = 1000;
    auto fewer = state.buffers();
    fewer.pop_back();
    for (const auto& [wanted, words] :
         {std::pair{renamed, "the file has nothing, this program 'epochs' i64[1]"},
          std::pair{smaller,
                    "the file has 'weights of the model' f32[1001], this program 'weights of the model' f32[1000]"},
          std::pair{fewer, "the file has 'nothing' f32[0], this program nothing"}}) {
        const auto error = error_of_loading(wanted);
        REQUIRE(error);
        CHECK(error->code() == ddp::ErrorCode::Mismatch);
        CHECK_THAT(error->what(), Contains(words));
    }
}

TEST_CASE("what a killed writer left is removed when the directory is opened", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {1});
    write_file(directory.path() / "step-2.safetensors.tmp", "half a checkpoint");
    write_file(directory.path() / "mine.tmp", "not ours");
    CHECK(latest(directory.path()) == 1);
    CHECK(directory.names() == Names{"step-1.safetensors", "mine.tmp"});
}

TEST_CASE("a full disk is an error on every rank and leaves nothing half-written", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string result = in_child([&]() -> std::string {
        if (!mount_tmpfs(directory.path(), "size=1m")) return "cannot mount";
        std::string text = error_of_saving(directory.path());
        const auto outcomes = try_ranks({.ranks_per_node = {3}}, [&](Context& context) {
            Checkpointer checkpointer(directory.path(), context);
            std::vector<char> large(3'000'000);
            checkpointer.save(200, std::vector<NamedBuffer>{{"large", {large.data(), large.size(), ddp::DType::I8}}});
        });
        for (const auto& outcome : outcomes)
            text += outcome.text() == outcomes[0].text() && outcome.text().find("No space left") != std::string::npos
                        ? "|same"
                        : "|other";
        for (const auto& name : directory.names()) text += "|left " + name;
        ::umount(directory.path().c_str());
        return text;
    });
    if (result == "cannot mount") {
        WARN("SKIPPED: mounting a small file system needs root");
        return;
    }
    CHECK_THAT(result, Contains("cannot write checkpoint " + (directory.path() / "step-200.safetensors").string() +
                                ": No space left on device") &&
                           Contains("needs 3.1 MB, 1.0 MB free") && Contains("Free space") &&
                           Contains("|same|same|same"));
    CHECK_THAT(result, !Contains("|left"));
}

TEST_CASE("a limit on file sizes is an error like a full disk, and the older checkpoint survives", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_steps(directory.path(), {100});
    const std::string result = in_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        return try_ranks({},
                         [&](Context& context) {
                             Checkpointer checkpointer(directory.path(), context);
                             const rlimit limit{1'000'000, 1'000'000};  // only now: it is a limit on shared memory too
                             ::setrlimit(RLIMIT_FSIZE, &limit);
                             std::vector<char> large(3'000'000);
                             checkpointer.save(200, std::vector<NamedBuffer>{
                                                        {"large", {large.data(), large.size(), ddp::DType::I8}}});
                         })
            .front()
            .text();
    });
    CHECK_THAT(result, Contains("step-200.safetensors") && Contains("File too large") && Contains("ulimit -f"));
    CHECK(directory.names() == Names{"step-100.safetensors"});
    CHECK(latest(directory.path()) == 100);
}

TEST_CASE("a directory that cannot be made or written to is named on every rank", "[checkpoint]") {
    const TemporaryDirectory directory;
    write_file(directory.path() / "file", "");
    const auto outcomes = try_ranks(
        {.ranks_per_node = {2}}, [&](Context& context) { Checkpointer(directory.path() / "file" / "below", context); });
    for (const auto& outcome : outcomes) {
        CHECK_THAT(outcome.text(), Contains((directory.path() / "file" / "below").string()) &&
                                       Contains("Not a directory. Remove the file that has the name of a directory") &&
                                       !Contains("this user"));
        CHECK(outcome.ddp_error()->code() == ddp::ErrorCode::Io);
    }
    if (::geteuid() != 0) {
        ::chmod(directory.path().c_str(), 0500);
        CHECK_THAT(error_of_saving(directory.path()),
                   Contains("Permission denied. Make the directory writable for this user"));
        ::chmod(directory.path().c_str(), 0700);
    }
}

TEST_CASE("a directory that vanishes during the run is an error, not a crash", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "gone";
    const auto outcome = try_ranks({}, [&](Context& context) {
                             Checkpointer checkpointer(path, context);
                             std::filesystem::remove_all(path);
                             State state;
                             checkpointer.save(1, state.buffers());
                         }).front();
    CHECK_THAT(outcome.text(), Contains("step-1.safetensors") && Contains("removed while the job ran"));
}

TEST_CASE("states with ambiguous names are refused", "[checkpoint]") {
    const TemporaryDirectory directory;
    float value = 1;
    const auto error_of = [&](std::vector<NamedBuffer> state) {
        return try_ranks({}, [&](Context& context) { Checkpointer(directory.path(), context).save(1, state); })
            .front()
            .text();
    };
    CHECK_THAT(error_of({{"a", ddp::Buffer(value)}, {"a", ddp::Buffer(value)}}), Contains("two tensors"));
    CHECK_THAT(error_of({{"", ddp::Buffer(value)}}), Contains("needs a name"));
    CHECK_THAT(error_of({{"a\nb", ddp::Buffer(value)}}), Contains("control character"));
    CHECK_THAT(error_of({{"a", {&value, 1, ddp::DType::F32, ddp::Device::Cuda}}}),
               Contains("cannot checkpoint 'a': it is device memory, and this group is on the native backend"));
    CHECK_THAT(
        try_ranks({}, [&](Context& context) { Checkpointer(directory.path(), context, {.keep = 0}); }).front().text(),
        Contains("keep is 0"));
    CHECK(directory.names().empty());
}

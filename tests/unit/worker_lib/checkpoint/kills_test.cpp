// Checkpoints after deaths at any moment of a save: the newest whole one loads, and nothing else is taken for one.

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/system/unique_fd.hpp"

#include "ddp/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"
#include "worker_lib/src/checkpoint/file.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;

namespace {

constexpr std::size_t kElements = 700'000;  // some blocks for each of three ranks

/// A rank's part of a model whose elements are all of one value.
struct Part {
    Part(const Context& context, float value)
        : begin(kElements * static_cast<std::size_t>(context.rank()) / static_cast<std::size_t>(context.world_size())),
          values(kElements * static_cast<std::size_t>(context.rank() + 1) /
                         static_cast<std::size_t>(context.world_size()) -
                     begin,
                 value) {}
    std::vector<NamedShard> state() { return {{"model", {kElements}, begin, Buffer(values)}}; }
    [[nodiscard]] bool is(float value) const { return std::ranges::count(values, value) == std::ssize(values); }
    std::size_t begin;
    std::vector<float> values;
};

/// Saves one step after another until the rank is killed, or has an error.
std::string save_for_ever(const std::filesystem::path& directory, Context& context) {
    Checkpointer checkpointer(directory, context, {.keep = 2});
    for (std::uint64_t step = checkpointer.latest().value_or(0) + 1;; ++step) {
        Part part(context, static_cast<float>(step));
        step % 2 == 0 ? checkpointer.save(step, part.state()) : checkpointer.save_async(step, part.state());
    }
}

/// The changes of a directory, one after another.
class Changes {
public:
    explicit Changes(const std::filesystem::path& directory) : fd_(::inotify_init1(IN_CLOEXEC)) {
        REQUIRE(::inotify_add_watch(fd_.get(), directory.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE) >=
                0);
    }
    /// Waits for the next change. Returns the step if it is a checkpoint that was committed, else 0.
    std::uint64_t next() {
        if (next_ == end_) {
            pollfd readable{fd_.get(), POLLIN, 0};
            REQUIRE(::poll(&readable, 1, 120'000) == 1);  // only a hang lasts as long
            const ssize_t bytes = ::read(fd_.get(), buffer_.data(), buffer_.size());
            REQUIRE(bytes > 0);
            next_ = 0;
            end_ = static_cast<std::size_t>(bytes);
        }
        inotify_event event{};
        std::memcpy(&event, buffer_.data() + next_, sizeof event);
        const char* const name = buffer_.data() + next_ + sizeof event;
        next_ += sizeof event + event.len;
        return event.len > 0 && (event.mask & IN_MOVED_TO) != 0 ? detail::step_of(name).value_or(0) : 0;
    }

private:
    ddprun::UniqueFd fd_;
    std::array<char, 8192> buffer_{};
    std::size_t next_ = 0;  // in buffer_
    std::size_t end_ = 0;
};

/// Loads the newest checkpoint by two ranks and returns its step; 0 if there is none or its values are wrong.
std::uint64_t load_newest(const std::filesystem::path& directory) {
    const auto steps = run_ranks({.ranks_per_node = {2}}, [&](Context& context) -> std::uint64_t {
        Checkpointer checkpointer(directory, context);
        const auto step = checkpointer.latest();
        Part part(context, -1);
        if (step) checkpointer.load(*step, part.state());
        return step && part.is(static_cast<float>(*step)) ? *step : 0;
    });
    return steps[0] == steps[1] ? steps[0] : 0;
}

}  // namespace

TEST_CASE("after SIGKILL of one or all ranks at any moment of a save the newest checkpoint loads", "[checkpoint]") {
    constexpr int kKills = 60;
    const TemporaryDirectory directory;
    std::mt19937 random(20261128);
    std::uint64_t newest = 0;
    for (int kill = 0; kill < kKills; ++kill) {
        Changes changes(directory.path());
        Processes processes({.ranks_per_node = {3}},
                            [&](Context& context) { return save_for_ever(directory.path(), context); });
        std::uint64_t committed = 0;
        if (kill % 3 == 0) {
            while (committed == 0) committed = changes.next();
        }
        for (unsigned left = 1 + random() % 8; left > 0; --left) committed = std::max(committed, changes.next());
        const std::size_t victim = random() % 4;  // 3: all
        CAPTURE(kill, victim);
        for (std::size_t rank = 0; rank < 3; ++rank)
            if (victim == rank || victim == 3) processes.kill(rank, SIGKILL);
        for (std::size_t rank = 0; rank < 3; ++rank) {
            const std::string report = processes.words(rank);
            CAPTURE(rank, report);
            CHECK((victim == rank || victim == 3 ? report.empty() : report.starts_with("error ")));
        }
        // Every file that has the name of a checkpoint is whole.
        const auto steps = detail::steps_in(directory.path());
        for (const std::uint64_t step : steps)
            CHECK(detail::find_damage(detail::checkpoint_path(directory.path(), step), step) == "");
        const std::uint64_t now = steps.empty() ? 0 : steps.front();
        CHECK(now >= std::max(newest, committed));
        newest = now;
        if (kill % 10 == 0) CHECK(load_newest(directory.path()) == newest);
    }
    CHECK(newest >= kKills / 3);  // every third kill waits for a commit
    CHECK(load_newest(directory.path()) == newest);
    for (const std::string& name : directory.names()) CHECK_THAT(name, !Contains(".tmp"));
}

TEST_CASE("a rank that is lost during a save fails it on the others, and leaves nothing", "[checkpoint]") {
    const TemporaryDirectory directory;
    const bool async = GENERATE(false, true);
    const int lost = GENERATE(0, 2);
    CAPTURE(async, lost);
    const auto errors = errors_of({.ranks_per_node = {2, 1}}, [&](Context& context) {
        Checkpointer checkpointer(directory.path(), context);
        Part part(context, 1);
        checkpointer.save(1, part.state());
        if (context.rank() == lost) throw Error(ErrorCode::System, "lost");
        async ? checkpointer.save_async(2, part.state()) : checkpointer.save(2, part.state());
        checkpointer.wait();
    });
    for (const auto& error : errors) REQUIRE(error);
    CHECK(directory.names() == std::set<std::string>{"step-1.safetensors"});
    CHECK(load_newest(directory.path()) == 1);
}

TEST_CASE("a flipped bit of a tensor in parts is named on every rank, and an older checkpoint is newest",
          "[checkpoint]") {
    const TemporaryDirectory directory;
    run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        Checkpointer checkpointer(directory.path(), context);
        for (const std::uint64_t step : {1, 2}) {
            Part part(context, static_cast<float>(step));
            checkpointer.save(step, part.state());
        }
    });
    const auto path = directory.path() / "step-2.safetensors";
    std::string contents = read_file(path);
    contents[contents.size() / 2] ^= 1;
    write_file(path, contents);
    const auto errors = errors_of({.ranks_per_node = {2}}, [&](Context& context) {
        Part part(context, -1);
        Checkpointer(directory.path(), context).load(2, part.state());
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Io);
        CHECK_THAT(error->what(), Contains("step-2.safetensors: the checksum of 'model' is wrong. Remove it"));
    }
    CHECK(load_newest(directory.path()) == 1);
}

TEST_CASE("ranks that do not see the files of rank 0 save and load through the others", "[checkpoint]") {
    const TemporaryDirectory directory;
    const bool async = GENERATE(false, true);
    const auto own = [&](const Context& context) {
        return directory.path() / (context.rank() < 2 ? "shared" : "of rank " + std::to_string(context.rank()));
    };
    const auto right = run_ranks({.ranks_per_node = {2, 2}}, [&](Context& context) {
        std::filesystem::create_directories(own(context));
        if (context.rank() == 3) write_file(own(context) / "step-4.safetensors", "of another job");
        Checkpointer checkpointer(own(context), context);
        Part part(context, 4);
        async ? checkpointer.save_async(4, part.state()) : checkpointer.save(4, part.state());
        Part loaded(context, -1);
        checkpointer.load(4, loaded.state());
        std::vector<float> whole(kElements);
        checkpointer.load(4, {{"model", Buffer(whole)}});
        return loaded.is(4) && std::ranges::count(whole, 4.0F) == std::ssize(whole);
    });
    CHECK(right == std::vector<bool>(4, true));
    CHECK(load_newest(directory.path() / "shared") == 4);
    CHECK(std::filesystem::is_empty(directory.path() / "of rank 2"));
}

// Whether the kernel killed a worker, from a tree of files like the kernel's before and after.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "agent/workers/oom.hpp"
#include "agent/workers/worker_processes.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/workers/processes.hpp"

using namespace ddprun::agent;
using ddprun::protocol::OomKill;

namespace {

/// A folder that stands for "/".
class FakeRoot {
public:
    void write(const std::string& name, const std::string& text) const { folder_.file(name, text, 0600); }
    [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

private:
    TemporaryDirectory folder_;
};

std::string events(int kills) {
    return "low 0\nhigh 0\nmax 17\noom 9\noom_kill " + std::to_string(kills) + "\noom_group_kill 0\n";
}

constexpr const char* kOwn = "0::/job/step_0\n";
constexpr const char* kOwnEvents = "sys/fs/cgroup/job/step_0/memory.events";

}  // namespace

TEST_CASE("kills are read from the group's own files, of either version", "[agent]") {
    const FakeRoot root;
    CHECK(read_oom_counts(root.path(), kOwn) == OomCounts{});
    root.write("proc/vmstat", "nr_free_pages 1\noom_kill 12\noom_kill_x 7\n");
    CHECK(read_oom_counts(root.path(), kOwn) == OomCounts{std::nullopt, 12});
    root.write(kOwnEvents, events(3));
    CHECK(read_oom_counts(root.path(), kOwn) == OomCounts{3, 12});
    CHECK(read_oom_counts(root.path(), "0::/\n").group == std::nullopt);  // those of another group do not count
    root.write("sys/fs/cgroup/memory/slurm/job_7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    CHECK(read_oom_counts(root.path(), "5:cpu,cpuacct:/x\n4:blkio,memory:/slurm/job_7\n0::/\n").group == 5u);
    for (const char* bad : {"", "\n\n", "0", "0:", "memory", "4:memory:/none\n", "0::/../../../etc\n"}) {
        CAPTURE(bad);
        CHECK(read_oom_counts(root.path(), bad).group == std::nullopt);
    }
    root.write(kOwnEvents, "oom_kill many\noom_kill\n");
    CHECK(read_oom_counts(root.path(), kOwn).group == std::nullopt);
}

TEST_CASE("the kernel killed it if the count of its group rose, perhaps, if only that of the machine did", "[agent]") {
    constexpr std::nullopt_t kNone = std::nullopt;
    CHECK(classify_oom({3, 12}, {4, 13}) == OomKill::kYes);
    CHECK(classify_oom({3, kNone}, {4, kNone}) == OomKill::kYes);
    CHECK(classify_oom({3, 12}, {3, 12}) == OomKill::kNo);
    CHECK(classify_oom({3, kNone}, {3, 13}) == OomKill::kNo);
    CHECK(classify_oom({3, 12}, {3, 13}) == OomKill::kMaybe);  // another container's, or one that was moved
    CHECK(classify_oom({kNone, 12}, {kNone, 13}) == OomKill::kMaybe);
    CHECK(classify_oom({kNone, 12}, {1, 12}) == OomKill::kNo);
    CHECK(classify_oom({3, kNone}, {kNone, kNone}) == OomKill::kUnknown);
    CHECK(classify_oom({}, {}) == OomKill::kUnknown);
}

TEST_CASE("each counted kill is attributed to one worker", "[agent]") {
    const FakeRoot root;
    root.write("proc/self/cgroup", kOwn);
    root.write("proc/vmstat", "oom_kill 7\n");
    root.write(kOwnEvents, events(1));
    OomWatch watch(root.path());
    CHECK(watch.classify_kill() == OomKill::kNo);
    root.write(kOwnEvents, events(3));
    root.write("proc/vmstat", "oom_kill 10\n");
    CHECK(watch.classify_kill() == OomKill::kYes);
    CHECK(watch.classify_kill() == OomKill::kYes);
    CHECK(watch.classify_kill() == OomKill::kMaybe);
    CHECK(watch.classify_kill() == OomKill::kNo);
    CHECK(OomWatch(root.path() / "nowhere").classify_kill() == OomKill::kUnknown);
}

TEST_CASE("an old out-of-memory kill makes one of today possible, not certain", "[agent]") {
    using namespace std::chrono_literals;
    const FakeRoot root;
    root.write("proc/self/cgroup", kOwn);
    root.write("proc/vmstat", "oom_kill 7\n");
    const bool group_known = GENERATE(true, false);
    if (group_known) root.write(kOwnEvents, events(1));
    OomWatch watch(root.path());
    const ddprun::TimePoint start = ddprun::Clock::now();
    root.write("proc/vmstat", "oom_kill 8\n");
    if (group_known) root.write(kOwnEvents, events(2));
    // The end of a large victim may be reported seconds later.
    const int seconds = GENERATE(0, 1, 5, 29, 3600);
    for (int second = 0; second <= seconds; ++second) watch.forget_old_kills(start + second * 1s);
    const bool recent = seconds < 3600;
    CHECK(watch.classify_kill() == (recent && group_known ? OomKill::kYes : OomKill::kMaybe));
    CHECK(watch.classify_kill() == OomKill::kNo);
}

TEST_CASE("an old kill elsewhere does not count", "[agent]") {
    using namespace std::chrono_literals;
    const FakeRoot root;
    root.write("proc/self/cgroup", kOwn);
    root.write("proc/vmstat", "oom_kill 7\n");
    root.write(kOwnEvents, events(1));
    OomWatch watch(root.path());
    const ddprun::TimePoint start = ddprun::Clock::now();
    root.write("proc/vmstat", "oom_kill 8\n");
    for (int minute = 0; minute < 3; ++minute) watch.forget_old_kills(start + minute * 1min);
    CHECK(watch.classify_kill() == OomKill::kNo);
}

TEST_CASE("old kills are forgotten while workers run", "[agent]") {
    using namespace std::chrono_literals;
    const FakeRoot root;
    root.write("proc/self/cgroup", kOwn);
    root.write(kOwnEvents, events(1));
    const bool short_period = GENERATE(true, false);
    boost::asio::io_context io{1};
    bool reaped = false;
    const agent_test::Mark mark;
    WorkerProcesses processes(io, {[](auto...) {}, [&] { reaped = true; }},
                              OomWatch(root.path(), short_period ? 5ms : 1h));
    WorkerSpec spec;
    spec.argv = {agent_test::shapes(), "wait"};
    spec.environment = {mark.assignment()};
    REQUIRE(processes.start(std::move(spec)).has_value());
    processes.all_started();
    root.write(kOwnEvents, events(2));
    constexpr int kHandlers = 20;  // the timer has most of them, and two are enough
    for (int i = 0; short_period && i < kHandlers; ++i) REQUIRE(io.run_one_for(20s) == 1);
    ::kill(processes.evidence(ddprun::LocalRank{0}).pid, SIGKILL);
    REQUIRE(agent_test::eventually([&] {
        io.restart();
        io.run_for(5ms);
        return reaped;
    }));
    CHECK(processes.evidence(ddprun::LocalRank{0}).oom == (short_period ? OomKill::kMaybe : OomKill::kYes));
}

TEST_CASE("nothing is read for a group that is reaped, although the timer had expired by then", "[agent]") {
    using namespace std::chrono_literals;
    const FakeRoot root;
    boost::asio::io_context io{1};
    bool reaped = false;
    boost::asio::steady_timer end(io, ddprun::Clock::now());  // it expires first, so its handler is called first
    WorkerProcesses processes(io, {[](auto...) {}, [&] { reaped = true; }}, OomWatch(root.path(), 1ms));
    end.async_wait([&](const boost::system::error_code&) { processes.all_started(); });  // of none
    std::this_thread::sleep_until(ddprun::Clock::now() + 10ms);  // both have expired when the loop first looks
    for (int i = 0; i < 100 && !io.stopped(); ++i) io.run_one_for(50ms);
    CHECK(reaped);
    CHECK(io.stopped());  // there is nothing to wait for
}

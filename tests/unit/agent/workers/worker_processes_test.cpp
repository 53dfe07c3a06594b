// Worker groups of real processes: a group is reaped only when every process has ended.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/workers/worker_processes_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

TEST_CASE("each worker's end is reported once, then that the group is reaped", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit=0"}).has_value());
    REQUIRE(group.start({"exit=3"}).has_value());
    REQUIRE(group.start({"raise=6"}).has_value());
    group.processes.all_started();
    CHECK(group.all_reaped());
    CHECK(group.exits.size() == 3);
    CHECK(group.exits[1].number == 3);
    CHECK(group.exits[2].exit_code() == 134);
    group.until([] { return true; });
    CHECK(group.reaped == 1);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a group is not reaped while a stray of any kind runs, and one signal reaches all", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "session", "daemon", "exit=0"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1 && group.living() == 3; }));
    CHECK(group.reaped == 0);
    CHECK(group.processes.remaining().size() == 3);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_reaped());
    CHECK(group.living() == 0);
}

TEST_CASE("processes that ignore SIGTERM, or fork without end, die of SIGKILL", "[agent]") {
    Group group;
    REQUIRE(group.start({"stubborn", "chain", "session", "out=ready\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(read_line(group.out.read_end.get()).empty());  // the loop has not run: nothing is shown yet
    CHECK(group.until([&] { return group.living() >= 3; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.reaped == 0);
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_reaped());
    CHECK(group.living() == 0);
}

TEST_CASE("a stray that appears after the signal gets it too", "[agent]") {
    Group group;
    REQUIRE(group.start({"session", "block", "err=ready\n", "signals"})
                .has_value());  // its child becomes ours only when it has ended
    group.processes.all_started();
    REQUIRE(
        group.until([&] { return !group.processes.evidence(LocalRank{0}).last_lines.empty() && group.living() == 2; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_reaped());
    CHECK(group.exits[0].success());
}

TEST_CASE("a stray that is stopped gets the signal, and continues to take it", "[agent]") {
    Group group;
    REQUIRE(group.start({"session", "exit=0"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1 && group.living() == 1; }));
    const pid_t stray = group.processes.remaining().front();
    ::kill(stray, SIGSTOP);
    REQUIRE(group.until([&] { return process_state(stray) == ProcessState::kStopped; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_reaped());
}

TEST_CASE("a stopped worker can still end by itself", "[agent]") {
    Group group;
    REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t pid = group.processes.evidence(LocalRank{0}).pid;
    ::kill(pid, SIGSTOP);
    REQUIRE(group.until([&] { return process_state(pid) == ProcessState::kStopped; }));
    CHECK(group.processes.rank_record(LocalRank{0}, 0).process_before == std::nullopt);
    const TimePoint signalled_from = Clock::now();
    group.processes.signal_group(SIGTERM);
    const TimePoint signalled_until = Clock::now();
    group.processes.signal_group(SIGTERM);  // it runs again by now
    CHECK(group.all_reaped());
    CHECK(group.exits[0].number == SIGTERM);
    const TimePoint looked_from = Clock::now();
    const protocol::RankRecord record = group.processes.rank_record(LocalRank{0}, 0);
    CHECK(record.process_before == ProcessState::kStopped);  // the diagnosis may come later
    REQUIRE(record.process_before_ago);
    CHECK(*record.process_before_ago >= looked_from - signalled_until);
    CHECK(*record.process_before_ago <= Clock::now() - signalled_from);
    CHECK(group.processes.rank_record(LocalRank{0}, 0).pid == pid);
}

TEST_CASE("an end that a debugger withholds is known as soon as the debugger detaches", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit-traced=3"}).has_value());
    group.processes.all_started();
    REQUIRE(
        group.until([&] { return process_state(group.processes.evidence(LocalRank{0}).pid) == ProcessState::kEnded; }));
    group.until([] { return true; });  // its pidfd has been readable for a whole run of the loop
    if (group.exits.contains(0) && group.exits[0].number == 97) {
        WARN("SKIPPED: no process may trace another one here (ptrace)");
        return;
    }
    CHECK(group.exits.empty());
    CHECK(group.processes.rank_record(LocalRank{0}, 0).ended);
    SECTION("by itself") {
        for (const pid_t debugger : group.mark.processes()) ::kill(debugger, SIGKILL);
    }
    SECTION("with the rest of the group, whose signal comes too late for the worker") {
        group.processes.signal_group(SIGTERM);
    }
    CHECK(group.all_reaped());
    CHECK(group.exits[0] == ExitStatus{ExitStatus::Kind::kExited, 3, false});
    CHECK(group.ends_by_themselves == std::set<int>{0});
}

TEST_CASE("a notification is for the workers, not for their helpers", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "block", "err=ready\n", "signals"}).has_value());
    group.processes.all_started();
    REQUIRE(
        group.until([&] { return !group.processes.evidence(LocalRank{0}).last_lines.empty() && group.living() == 2; }));
    group.processes.notify_workers(SIGUSR1);
    // At SIGTERM the worker ends itself. One is not enough: the worker may be busy with the other signal.
    CHECK(group.until([&] {
        group.processes.notify_workers(SIGTERM);
        return group.exits.size() == 1;
    }));
    CHECK(group.exits[0].success());
    CHECK(group.living() == 1);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_reaped());
}

TEST_CASE("a program that does not exist is an error, and an empty group is reaped", "[agent]") {
    Group group;
    const auto started = group.start({}, "/nonexistent/program");
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().code == boost::system::errc::no_such_file_or_directory);
    group.processes.all_started();
    CHECK(group.all_reaped());
    CHECK(group.exits.empty());
}

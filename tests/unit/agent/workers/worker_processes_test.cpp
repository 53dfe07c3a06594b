// Worker groups of real processes: nothing is gone before everything is.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/worker_processes_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

TEST_CASE("each worker's end is told once, then that nothing is left", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit=0"}).has_value());
    REQUIRE(group.start({"exit=3"}).has_value());
    REQUIRE(group.start({"raise=6"}).has_value());
    group.processes.all_started();
    CHECK(group.all_gone());
    CHECK(group.exits.size() == 3);
    CHECK(group.exits[1].number == 3);
    CHECK(group.exits[2].exit_code() == 134);
    group.until([] { return true; });
    CHECK(group.gone == 1);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a group is not gone while a stray of any shape lives, and one signal reaches all", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "session", "daemon", "exit=0"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1 && group.living() == 3; }));
    CHECK(group.gone == 0);
    CHECK(group.processes.remaining().size() == 3);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.living() == 0);
}

TEST_CASE("what ignores SIGTERM and what never holds still dies of SIGKILL", "[agent]") {
    Group group;
    REQUIRE(group.start({"stubborn", "chain", "session", "out=ready\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(read_line(group.out.read_end.get()).empty());  // the loop has not run: nothing is shown yet
    CHECK(group.until([&] { return group.living() >= 3; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.gone == 0);
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_gone());
    CHECK(group.living() == 0);
}

TEST_CASE("a stray that appears after the signal gets it too", "[agent]") {
    Group group;
    REQUIRE(group.start({"session", "block", "err=ready\n", "signals"})
                .has_value());  // its child is ours only when it has ended
    group.processes.all_started();
    REQUIRE(group.until([&] { return !group.processes.last_lines(LocalRank{0}).empty() && group.living() == 2; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.exits[0].success());
}

TEST_CASE("a stopped worker can still end in good order", "[agent]") {
    Group group;
    REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t pid = group.processes.pid(LocalRank{0});
    ::kill(pid, SIGSTOP);
    REQUIRE(group.until([&] { return process_state(pid) == "stopped"; }));
    CHECK(group.processes.rank_board(LocalRank{0}, 0).process_before == "");
    const TimePoint told_from = Clock::now();
    group.processes.signal_group(SIGTERM);
    const TimePoint told_until = Clock::now();
    group.processes.signal_group(SIGTERM);  // by now it goes on
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == SIGTERM);
    const TimePoint looked_from = Clock::now();
    const coordinator::RankBoard board = group.processes.rank_board(LocalRank{0}, 0);
    CHECK(board.process_before == "stopped");  // a verdict may come later
    REQUIRE(board.process_before_ago);
    CHECK(*board.process_before_ago >= looked_from - told_until);
    CHECK(*board.process_before_ago <= Clock::now() - told_from);
    CHECK(group.processes.rank_board(LocalRank{0}, 0).pid == pid);
}

TEST_CASE("an end that a debugger keeps to itself is known as soon as the debugger lets go", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit-traced=3"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return process_state(group.processes.pid(LocalRank{0})) == "ended"; }));
    group.until([] { return true; });  // its pidfd has been readable for a whole turn of the loop
    if (group.exits.contains(0) && group.exits[0].number == 97) {
        WARN("SKIPPED: no process may trace another one here (ptrace)");
        return;
    }
    CHECK(group.exits.empty());
    CHECK(group.processes.rank_board(LocalRank{0}, 0).ended);
    SECTION("by itself") {
        for (const pid_t debugger : group.mark.processes()) ::kill(debugger, SIGKILL);
    }
    SECTION("with the rest of the group, whose signal comes too late for the worker") {
        group.processes.signal_group(SIGTERM);
    }
    CHECK(group.all_gone());
    CHECK(group.exits[0] == ExitStatus{ExitStatus::Kind::kExited, 3, false});
    CHECK(group.unasked_ends == std::set<int>{0});
}

TEST_CASE("a notification is for the workers, not for their helpers", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "block", "err=ready\n", "signals"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return !group.processes.last_lines(LocalRank{0}).empty() && group.living() == 2; }));
    group.processes.notify_workers(SIGUSR1);
    group.processes.notify_workers(SIGTERM);  // the worker's own way to end
    CHECK(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.exits[0].success());
    CHECK(group.living() == 1);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
}

TEST_CASE("a program that does not exist is an error, and an empty group is gone", "[agent]") {
    Group group;
    const auto started = group.start({}, "/nonexistent/program");
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().code == boost::system::errc::no_such_file_or_directory);
    group.processes.all_started();
    CHECK(group.all_gone());
    CHECK(group.exits.empty());
}

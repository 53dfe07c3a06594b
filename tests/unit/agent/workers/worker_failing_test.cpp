// Workers that fail while their group is told to end: which ends it has caused, and who is given time for its own.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "tests/catch.hpp"
#include "tests/unit/agent/board_rig.hpp"
#include "tests/unit/agent/worker_processes_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

/// Tells the group to end, and waits for those in `own`, which end by themselves. False: this machine stood still for
/// so long that they were rightly told to end.
[[nodiscard]] bool ends_in_time(Group& group, const std::set<int>& own, int signal = SIGTERM) {
    constexpr std::chrono::seconds kGiven{1};
    const TimePoint from = Clock::now();
    group.processes.signal_group(signal);
    CHECK(group.until([&] { return std::ranges::all_of(own, [&](int rank) { return group.exits.contains(rank); }); }));
    if (Clock::now() < from + kGiven) return true;
    CHECK(group.all_gone());
    WARN("SKIPPED: a worker took longer than the second that it is given to end by itself");
    return false;
}

}  // namespace

TEST_CASE("ends that the stop did not cause are told apart from those that it did", "[agent]") {
    Group group;
    for (int i = 0; i < 3; ++i) REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t crashed = group.processes.pid(LocalRank{0});
    const pid_t stopped = group.processes.pid(LocalRank{1});
    ::kill(crashed, SIGABRT);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(crashed), &ended, WEXITED | WNOWAIT) == 0);
    ::kill(stopped, SIGSTOP);  // so that somebody else's SIGKILL comes first
    ::kill(stopped, SIGKILL);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.unasked_ends == std::set<int>{0, 1});
    CHECK(group.exits[2].number == SIGTERM);
}

TEST_CASE("a worker that is failing by itself may end by itself, and is told to end when it does not", "[agent]") {
    const std::string traceback = "err=Traceback (most recent call last):\nValueError: x\n";
    const std::string error_file = R"(error-file={"message": "ValueError: x"})";
    const int signal = GENERATE(SIGTERM, SIGUSR1);
    Group group;
    REQUIRE(group.start({traceback, "sleep-ms=200", "exit=3"}).has_value());
    REQUIRE(group.start({error_file, "err=.\n", "sleep-ms=200", "exit=4"}).has_value());
    REQUIRE(group.start({traceback, "wait"}).has_value());
    REQUIRE(group.start({"err=a warning\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.last_lines(LocalRank{i}).empty()) return false;
        }
        return true;
    }));
    if (!ends_in_time(group, {0, 1}, signal)) return;
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == 4);
    CHECK(group.exits[2].number == signal);
    CHECK(group.exits[3].number == signal);
    CHECK(group.unasked_ends == std::set<int>{0, 1});
    CHECK(group.processes.failing_since(LocalRank{0}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{3}));
}

TEST_CASE("a worker that has given up a group may end by itself, for its peers end of that", "[agent]") {
    Rig gives_up;
    gives_up.writer->abort("an exception ended its backward", gives_up.add("world", {0, 1}));
    Rig goes_on;  // it has given up another group on purpose, and has gone on
    const auto world = goes_on.add("world", {0, 1});
    goes_on.writer->abort("no more of this", goes_on.add("pipeline", {0, 1}));
    const auto since = goes_on.queue(world, 1);
    since.started();
    since.ended(true);
    Group group;
    REQUIRE(group.start({"err=.\n", "sleep-ms=200", "exit=3"}, shapes(), std::move(gives_up.agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        return !group.processes.last_lines(LocalRank{0}).empty() && !group.processes.last_lines(LocalRank{1}).empty();
    }));
    if (!ends_in_time(group, {0})) return;
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == SIGTERM);
    CHECK(group.processes.failing_since(LocalRank{0}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{1}));
}

TEST_CASE("a worker that gave up a group, went on and gives up another one now is failing since then", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    Group group;
    rig.writer->abort("no more of this", rig.add("pipeline", {0, 1}));
    const auto since = rig.queue(world, 1);
    since.started();
    since.ended(true);
    rig.writer->abort("an exception ended its backward", world);
    REQUIRE(group.start({"wait"}, shapes(), std::move(rig.agent)).has_value());
    group.processes.all_started();
    CHECK(group.processes.failing_since(LocalRank{0}));
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_gone());
}

TEST_CASE("a worker on its way out of its groups may end by itself, and failed if that was by an exception",
          "[agent]") {
    Rig done;  // it ends as if all were done
    const auto world = done.add("world", {0, 1});
    done.writer->leave(false, done.add("sub", {0, 1}));
    ddp::detail::Board::leave(false, world);
    Rig throws;  // a group of its own it keeps until later
    (void)throws.add("kept", {0, 1});
    ddp::detail::Board::leave(true, throws.add("world", {0, 1}));
    Rig misfit;
    ddp::detail::TransferBatch batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::u8}, 1, 0}};
    misfit.writer->note_misfit(batch, misfit.queue(batch, misfit.add("world", {0, 1})).front());
    Rig goes_on;
    (void)goes_on.add("world", {0, 1});
    ddp::detail::Board::leave(false, goes_on.add("sub", {0, 1}));
    Group group;
    for (Rig* rig : {&done, &throws, &misfit})
        REQUIRE(group.start({"err=.\n", "sleep-ms=200", "exit=3"}, shapes(), std::move(rig->agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.last_lines(LocalRank{i}).empty()) return false;
        }
        return true;
    }));
    if (!ends_in_time(group, {0, 1, 2})) return;
    CHECK(group.all_gone());
    for (const int own : {0, 1, 2}) CHECK(group.exits[own].number == 3);
    CHECK(group.exits[3].number == SIGTERM);
    CHECK_FALSE(group.processes.failing_since(LocalRank{0}));
    CHECK(group.processes.failing_since(LocalRank{1}));
    CHECK(group.processes.failing_since(LocalRank{2}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{3}));
}

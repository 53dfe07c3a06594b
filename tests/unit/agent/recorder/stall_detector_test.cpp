// What the agent reports about a stuck worker, and how it reads the state of a process.
#include <unistd.h>

#include <chrono>

#include "agent/recorder/stall_detector.hpp"
#include "common/system/process_stat.hpp"
#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/agent/recorder/record_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
using protocol::FlightRecord;

TEST_CASE("an operation that takes too long is reported once, and the next one again", "[agent]") {
    StallDetector watch(10s);
    FlightRecord view;
    view.written = true;
    view.groups.push_back({"world", 0, 2, {{0, 2, 1}}, true, 3, 3, 2});
    protocol::RecordedOperation& operation = view.operations.emplace_back();
    operation.id = 30;
    operation.seq = 3;
    operation.group = 0;
    CHECK_FALSE(watch.look(Rank{1}, view));  // queued only
    operation.started_ago = operation.waited_ago = 9s;
    CHECK_FALSE(watch.look(Rank{1}, view));
    operation.started_ago = 11s;
    CHECK_FALSE(watch.look(Rank{1}, view));  // its program has not waited that long
    operation.waited_ago = 12s;
    const auto report = watch.look(Rank{1}, view);
    REQUIRE(report);
    CHECK(watch.look(Rank{1}, view));  // the daemon has not got it yet
    watch.set_reported(Rank{1}, view);
    CHECK(*report == protocol::Stalled{Generation{0}, Rank{1}, "world", 3, 0, 11s});
    CHECK_FALSE(watch.look(Rank{1}, view));
    CHECK(watch.look(Rank{2}, view));
    operation.id = 31;
    CHECK(watch.look(Rank{1}, view));
    watch.set_reported(Rank{1}, view);
    operation.ended_ago = 1s;
    CHECK_FALSE(watch.look(Rank{1}, view));
    operation.ended_ago.reset();
    CHECK_FALSE(StallDetector(0s).look(Rank{1}, view));
    watch.reset();
    CHECK(watch.look(Rank{1}, view));
    CHECK(watch.interval() == 1s);
    CHECK(StallDetector(1s).interval() == 250ms);
    CHECK(StallDetector(0s).interval() == 1s);  // it still looks for deadlines that have passed
}

TEST_CASE("a host that does not answer is reported at once, and again if the wait was reported before", "[agent]") {
    const auto warning = GENERATE(0s, 1s, 30s);
    StallDetector watch(warning);
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    const auto entry = rig.queue(world, 1);
    entry.started();
    entry.waited(true);
    FlightRecord waiting = rig.agent.view(0);
    if (warning == 1s) waiting.operations[0].started_ago = waiting.operations[0].waited_ago = 2s;
    CHECK(watch.look(Rank{0}, waiting).has_value() == (warning == 1s));
    watch.set_reported(Rank{0}, waiting);
    entry.unreachable(1);
    const FlightRecord cut = rig.agent.view(0);
    REQUIRE(cut.operations.size() == 1);
    CHECK(cut.operations[0].unreachable == 1);
    REQUIRE(watch.look(Rank{0}, cut).has_value());
    CHECK(watch.look(Rank{0}, cut)->seq == 1);
    CHECK(watch.look(Rank{0}, cut)->unreachable);
    watch.set_reported(Rank{0}, cut);
    CHECK_FALSE(watch.look(Rank{0}, cut).has_value());
    FlightRecord later = cut;  // the report was about the host alone
    later.operations[0].started_ago = later.operations[0].waited_ago = 31s;
    REQUIRE(watch.look(Rank{0}, later).has_value() == (warning != 0s));
    if (warning != 0s) CHECK_FALSE(watch.look(Rank{0}, later)->unreachable);
}

TEST_CASE("an operation shows the unreachable host beside its error, until it ends well", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    const auto entry = rig.queue(world, 1);
    entry.started();
    entry.unreachable(0);
    CHECK(rig.agent.view(9).operations[0].unreachable == 0);
    entry.unreachable(-1);
    CHECK(rig.agent.view(9).operations[0].unreachable == -1);
    entry.unreachable(1);
    const bool well = GENERATE(true, false);
    if (!well) entry.peer_failed();
    entry.ended(well);
    const protocol::RecordedOperation ended = rig.agent.view(9).operations[0];
    CHECK(ended.unreachable == (well ? -1 : 1));
    CHECK(ended.peer_failed == !well);
    CHECK_FALSE(ended.timed_out);
}

TEST_CASE(
    "an operation that failed by its deadline is reported once, whatever the warning, and only if that was recent",
    "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    const auto first = rig.queue(world, 1);
    const auto second = rig.queue(world, 2);
    first.started();
    first.ended(false, true);
    second.started();
    second.ended(false);
    StallDetector off(0s);
    FlightRecord view = rig.agent.view(0);
    REQUIRE(view.operations.size() == 2);
    CHECK(view.operations[0].timed_out);
    CHECK_FALSE(view.operations[1].timed_out);
    const auto report = off.look(Rank{1}, view);
    REQUIRE(report);
    CHECK(report->timed_out);
    CHECK(report->seq == 1);
    off.set_reported(Rank{1}, view);
    CHECK_FALSE(off.look(Rank{1}, view));
    view.operations[0].ended_ago = 11s;
    CHECK_FALSE(StallDetector(0s).look(Rank{1}, view));
}

TEST_CASE("an old operation in progress does not hide that a worker is stuck in another one", "[agent]") {
    StallDetector watch(10s);
    FlightRecord view;
    view.groups.push_back({"world", 0, 2, {{0, 2, 1}}, true, 3, 3, 2});
    const auto begun = [&](std::uint64_t id, std::chrono::nanoseconds ago) {
        protocol::RecordedOperation& operation = view.operations.emplace_back();
        operation.id = operation.seq = id;
        operation.group = 0;
        operation.started_ago = operation.waited_ago = ago;
    };
    begun(1, 3h);
    CHECK(watch.look(Rank{1}, view)->seq == 1);
    watch.set_reported(Rank{1}, view);
    begun(183, 5s);
    begun(184, 4s);
    CHECK_FALSE(watch.look(Rank{1}, view));
    view.operations[1].started_ago = view.operations[1].waited_ago = 12s;
    view.operations[2].started_ago = view.operations[2].waited_ago = 11s;
    CHECK(watch.look(Rank{1}, view)->seq == 183);
    watch.set_reported(Rank{1}, view);
    CHECK_FALSE(watch.look(Rank{1}, view));
}

TEST_CASE("the state of a process is read from the kernel's letter, whatever its name", "[agent]") {
    CHECK(parse_process_state("71 (train) S 70 71") == ProcessState::kRunning);
    CHECK(parse_process_state("71 (a) T (b) R 70") == ProcessState::kRunning);
    CHECK(parse_process_state("71 (train) T 70") == ProcessState::kStopped);
    CHECK(parse_process_state("71 (train) t 70") == ProcessState::kStopped);
    CHECK(parse_process_state("71 (train) D 70") == ProcessState::kInKernel);
    CHECK(parse_process_state("71 (train) Z 70") == ProcessState::kEnded);
    CHECK(parse_process_state("") == ProcessState::kUnknown);  // an empty /proc entry does not prove that it has ended
    CHECK(parse_process_state("71 (train) ") == ProcessState::kUnknown);
    CHECK(process_state(::getpid()) == ProcessState::kRunning);
}

TEST_CASE("the parent of a process is read from the kernel's number, whatever its name", "[agent]") {
    CHECK(parse_process_stat("71 (train) S 70 71").parent == 70);
    CHECK(parse_process_stat("71 (a) S 5 (b) R 70 3").parent == 70);
    CHECK(parse_process_stat("").parent == -1);
    CHECK(parse_process_stat("71 (train) ").parent == -1);
    CHECK(parse_process_stat("71 (train) S x").parent == -1);
    CHECK(parent_of(::getpid()) == ::getppid());
    CHECK(parent_of(-1) == -1);
    CHECK(is_below(::getpid(), ::getpid()));
    CHECK(is_below(::getpid(), ::getppid()));
    CHECK(is_below(::getpid(), parent_of(::getppid())));
    CHECK_FALSE(is_below(::getppid(), ::getpid()));
    CHECK_FALSE(is_below(::getpid(), -1));
}

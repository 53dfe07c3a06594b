// Where the time of a node goes: parts that do not overlap, and sum up to all of it.
#include "agent/time_account.hpp"

#include "agent/group_times.hpp"
#include "agent/job_history.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

constexpr TimePoint kBegan{1000s};

protocol::Assignment group_number(int generation) {
    protocol::Assignment assignment;
    assignment.generation = Generation{generation};
    return assignment;
}

/// Restored for 3 s, made steps again for 2 s and new ones for 20 s; a failure was seen 1 s before the stop, which took
/// 0.5 s.
GroupTimes whole_group() {
    return {.assignment = {},
            .waited_since = kBegan,
            .assigned_at = kBegan + 1s,
            .started_at = kBegan + 2s,
            .stop_began_at = kBegan + 28s,
            .ended_at = kBegan + 28'500ms,
            .detected_after = 1s,
            .steps = {40, kBegan + 5s, kBegan + 7s}};
}

}  // namespace

TEST_CASE("the time of a group is spent on one part after the other", "[agent]") {
    const TimeAccount time = account_of(whole_group(), true, kBegan + 100s);
    CHECK(time.waiting == 0s);
    CHECK(time.rendezvous == 1s);
    CHECK(time.start == 1s);
    CHECK(time.restore == 3s);
    CHECK(time.recompute == 2s);
    CHECK(time.productive == 20s);
    CHECK(time.detect == 1s);
    CHECK(time.stop == 500ms);
    CHECK(wall_time(time) == 28'500ms);
    CHECK(goodput(time) == Approx(20.0 / 28.5));
}

TEST_CASE("a pause is waiting, whatever it interrupts", "[agent]") {
    GroupTimes group = whole_group();
    group.pauses = {{kBegan - 5s, kBegan + 500ms},         // for nodes
                    {kBegan + 6s, kBegan + 9s},            // held while it made steps again, and new ones
                    {kBegan + 28s, kBegan + 1'000'000s}};  // frozen until it was killed
    const TimeAccount time = account_of(group, true, kBegan + 100s);
    CHECK(time.waiting == 500ms + 3s + 500ms);
    CHECK(time.rendezvous == 500ms);
    CHECK(time.recompute == 1s);
    CHECK(time.productive == 18s);
    CHECK(time.stop == 0s);
    CHECK(wall_time(time) == 28'500ms);
}

TEST_CASE("a group that has not come far spends its time on the part that it has reached", "[agent]") {
    GroupTimes group = whole_group();
    SECTION("no step was begun") {
        group.steps = {};
        CHECK(account_of(group, true, kBegan).restore == 25s);
        CHECK(account_of(group, false, kBegan).productive == 25s);
    }
    SECTION("no new step was begun") {
        group.steps.new_at.reset();
        CHECK(account_of(group, true, kBegan).recompute == 22s);
    }
    SECTION("it was stopped during its start") {
        group.started_at.reset();
        group.steps = {};
        group.detected_after.reset();
        const TimeAccount time = account_of(group, true, kBegan);
        CHECK(time.start == 27s);
        CHECK(time.restore == 0s);
    }
    SECTION("the sign of a failure is older than the workers") {
        group.detected_after = 100s;
        const TimeAccount time = account_of(group, true, kBegan);
        CHECK(time.detect == 26s);
        CHECK(wall_time(time) == 28'500ms);
    }
    SECTION("it goes on") {
        group.ended_at.reset();
        group.stop_began_at.reset();
        group.detected_after.reset();
        CHECK(account_of(group, true, kBegan + 10s).productive == 3s);
    }
    SECTION("its worker has written times that cannot be") {
        group.steps = {40, kBegan + 90s, kBegan + 1s};
        CHECK(wall_time(account_of(group, true, kBegan)) == 28'500ms);
    }
}

TEST_CASE("all the time of a job is accounted for, also that of groups which are not kept", "[agent]") {
    JobHistory history(kBegan);
    history.note(Event{kBegan + 1s, WaitReceived{"1 of 2 nodes are here", true}});
    history.note(Event{kBegan + 4s, WaitReceived{"waiting for more", false}});  // the wait goes on
    TimePoint now = kBegan + 5s;
    for (int i = 1; i <= 100; ++i) {
        history.note(StartWorkers{group_number(i)}, now);
        history.note_started(now += 1s);
        history.note(SuspendGroup{}, now + 1s);
        history.note(ContinueGroup{}, now + 2s);
        history.note(Event{now += 6s, AbortReceived{Generation{i}, "node n2 was lost", 0, false, 1500ms}});
        history.note(SignalGroup{SIGTERM}, now);
        history.note(Event{now += 1s, GroupReaped{{static_cast<std::uint64_t>(i), now - 6s, now - 5s}}});
        now += 2s;
    }
    history.note(Finish{}, now);
    const TimeAccount& time = history.time();
    CHECK(wall_time(time) == now - kBegan);
    CHECK(time.waiting == 4s + 100s + 2s);  // at the end for what other nodes do
    CHECK(time.start == 100s);
    CHECK(time.restore == 100s);
    CHECK(time.recompute == 0s);  // they were held meanwhile
    CHECK(time.productive == 250s);
    CHECK(time.detect == 150s);
    CHECK(time.stop == 100s);
    CHECK(history.names_steps());
}

TEST_CASE("a node whose workers have succeeded waits for the others", "[agent]") {
    JobHistory history(kBegan);
    history.note(StartWorkers{group_number(1)}, kBegan + 1s);
    history.note_started(kBegan + 2s);
    history.note(SendMessage{protocol::GroupSucceeded{Generation{1}}}, kBegan + 10s);
    history.note(SignalGroup{SIGTERM}, kBegan + 10s);  // to what they have left
    history.note(Event{kBegan + 10s, GroupReaped{}});
    history.note(Finish{}, kBegan + 30s);
    CHECK(history.time().productive == 8s);
    CHECK(history.time().waiting == 20s);
    CHECK(wall_time(history.time()) == 30s);
}

TEST_CASE("what the daemon says after a node has succeeded is a part of one wait", "[agent]") {
    JobHistory history(kBegan);
    history.note(StartWorkers{group_number(1)}, kBegan);
    history.note_started(kBegan);
    history.note(SendMessage{protocol::GroupSucceeded{Generation{1}}}, kBegan + 10s);
    history.note(SignalGroup{SIGTERM}, kBegan + 10s);
    history.note(Event{kBegan + 10s, GroupReaped{}});
    history.note(Event{kBegan + 20s, WaitReceived{"1 of 2 nodes are here", true}});
    SECTION("the job ends") {
        history.note(Finish{}, kBegan + 60s);
        CHECK(history.time().waiting == 50s);
        CHECK(history.time().rendezvous == 0s);
    }
    SECTION("another group starts") {
        history.note(StartWorkers{group_number(2)}, kBegan + 60s);
        CHECK(history.time_of_latest(kBegan + 60s).waiting == 50s);
    }
    SECTION("a stop by a signal") { history.note(Finish{}, kBegan + 10s); }
    CHECK(history.groups().front().time.productive == 10s);
}

TEST_CASE("the stop of workers that were held is a stop", "[agent]") {
    JobHistory history(kBegan);
    history.note(StartWorkers{group_number(1)}, kBegan);
    history.note_started(kBegan);
    history.note(SuspendGroup{}, kBegan + 10s);
    history.note(SignalGroup{SIGTERM}, kBegan + 15s);
    history.note(SuspendGroup{}, kBegan + 16s);  // the lease ends: what is being stopped waits as well
    history.note(ContinueGroup{}, kBegan + 18s);
    history.note(Event{kBegan + 20s, GroupReaped{}});
    history.note(Finish{}, kBegan + 20s);
    CHECK(history.time().productive == 10s);
    CHECK(history.time().waiting == 7s);
    CHECK(history.time().stop == 3s);
}

TEST_CASE("groups before the first step of the job were restoring", "[agent]") {
    JobHistory history(kBegan);
    const auto group = [&](int generation, TimePoint from, const StepTimes& steps) {
        history.note(StartWorkers{group_number(generation)}, from);
        history.note_started(from);
        history.note(SignalGroup{SIGTERM}, from + 10s);
        history.note(Event{from + 10s, GroupReaped{steps}});
    };
    group(1, kBegan, {});
    CHECK(history.time().productive == 10s);
    CHECK_FALSE(history.names_steps());
    group(2, kBegan + 10s, {3, kBegan + 14s, kBegan + 14s});
    group(3, kBegan + 20s, {});
    history.note(Finish{}, kBegan + 30s);
    CHECK(history.time().productive == 6s);
    CHECK(history.time().restore == 10s + 4s + 10s);
    CHECK(history.groups().front().time.restore == 10s);
    CHECK(wall_time(history.time()) == 30s);
}

TEST_CASE("processes that cannot be killed do not hide the time that was spent on them", "[agent]") {
    JobHistory history(kBegan);
    history.note(StartWorkers{group_number(1)}, kBegan + 1s);
    history.note_started(kBegan + 1s);
    history.note(Event{kBegan + 1s, GroupReaped{{1, kBegan + 1s, kBegan + 1s}}});
    history.note(StartWorkers{group_number(2)}, kBegan + 1s);
    history.note_started(kBegan + 2s);
    history.note(SignalGroup{SIGTERM}, kBegan + 4s);
    history.note_steps({2, kBegan + 3s, kBegan + 3s});
    history.note(Finish{}, kBegan + 30s);
    history.note_steps({9, kBegan, kBegan});  // too late
    CHECK(history.time().restore == 1s);
    CHECK(history.time().productive == 1s);
    CHECK(history.time().stop == 26s);
    CHECK(wall_time(history.time()) == 30s);
}

TEST_CASE("the line about the goodput names the parts in which time was lost, the greatest first", "[agent]") {
    TimeAccount time = account_of(whole_group(), true, kBegan);
    CHECK(goodput_text(time, true) ==
          "goodput: 70 % of 28.5 s went into new steps; the rest: restore 3.0 s, recompute 2.0 s, "
          "rendezvous 1.0 s, "
          "start 1.0 s, detect 1.0 s, stop 0.5 s");
    CHECK(goodput_text({.productive = 5s}, true) == "goodput: 100 % of 5.0 s went into new steps");
    CHECK_THAT(goodput_text({.productive = 99'960ms, .stop = 40ms}, true), Catch::StartsWith("goodput: 99.9 % of "));
    CHECK_THAT(goodput_text({.productive = 999'900ms, .stop = 100ms}, true), Catch::StartsWith("goodput: 99.9 % of "));
    time = account_of(whole_group(), false, kBegan);
    CHECK(goodput_text(time, false) ==
          "time: workers ran for 88 % of 28.5 s; the rest: rendezvous 1.0 s, start 1.0 s, detect 1.0 s, "
          "stop 0.5 s; how much of that went into new steps is known if the program names them (ddp::set_step() or "
          "DDPRUN_STEP_FILE)");
    CHECK(goodput_text({}, true) == "goodput: 0 % of 0 ms went into new steps");
}

TEST_CASE("a node has restored its state when the last of its workers has", "[agent]") {
    const StepTimes first{7, kBegan + 1s, kBegan + 3s};
    const StepTimes second{8, kBegan + 2s, {}};
    const StepTimes both = combined(first, second);
    CHECK(both.latest == 8U);
    CHECK(both.first_at == kBegan + 2s);
    CHECK(both.new_at == std::nullopt);
    CHECK(combined({}, first).new_at == first.new_at);
    CHECK(combined(first, {}).latest == 7U);
    CHECK(combined(first, {9, kBegan, kBegan + 4s}).new_at == kBegan + 4s);
}

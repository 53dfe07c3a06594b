// Workers whose lease has ended: they are held until the daemon is reached again.
#include "tests/catch.hpp"
#include "tests/unit/agent/group/group.hpp"

using namespace group_test;

namespace {

LeaseEnded lease_ended(const Group& group) { return {"the daemon is silent", group.now + 27s}; }
Actions frozen() { return {SuspendGroup{}, FreezeGroup{}}; }
Actions continued() { return {AdoptNames{"run", "n2", "s"}, ThawGroup{}, ContinueGroup{}}; }
Welcomed welcomed(bool lost = false) { return {"run", "n2", "s", lost}; }

/// Ends the workers that are left by the group's signal, and the group.
Group& reap(Group& group) {
    for (const std::set<LocalRank> left = group.state.running; const LocalRank rank : left)
        group << WorkerExited{rank, killed_by(SIGKILL)};
    return group << GroupReaped{};
}

}  // namespace

TEST_CASE("workers are held when the lease ends, and go on when the daemon is reached again", "[agent]") {
    Group group = running();
    group << lease_ended(group);
    CHECK(group.actions == frozen());
    CHECK(group.reason == "the daemon is silent; the workers of this node wait until it is reached again");
    CHECK(group.reason_until == group.now + 27s);
    CHECK(group.outcome_follows);  // most waits are over before the line is printed
    CHECK((group << lease_ended(group)).actions.empty());
    group << welcomed();
    CHECK(group.actions == continued());
    CHECK(group.supersedes_reasons);
    CHECK(group.state.phase == Phase::kRunning);
    CHECK((group << welcomed()).actions == Actions{AdoptNames{"run", "n2", "s"}});
}

TEST_CASE("if the job has gone on meanwhile the workers are killed without a grace, and the node goes on", "[agent]") {
    Group group = running();
    const bool is_frozen = GENERATE(true, false);  // the connection may have broken for the daemon alone
    if (is_frozen) group << lease_ended(group);
    group << welcomed(true);
    Actions expected{AdoptNames{"run", "n2", "s"}, SignalGroup{SIGKILL}};
    if (is_frozen) expected.emplace_back(ThawGroup{});
    CHECK(group.actions == expected);
    CHECK((group << AbortReceived{Generation{1}, "node n2 was lost"}).actions.empty());
    CHECK(reap(group).actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
    CHECK((group << Assigned{assignment(3)}).actions == Actions{StartWorkers{assignment(3)}});
}

TEST_CASE("whatever ends a frozen group kills it: it cannot handle a signal, and must not run", "[agent]") {
    Group group = running();
    group << lease_ended(group);
    SECTION("the daemon is given up") {
        group << DaemonLost{"silent for too long"};
        CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
        CHECK(reap(group).finished_with(69));
    }
    SECTION("a signal to this node") {
        group << StopSignal{SIGTERM};
        CHECK(group.actions == Actions{SendMessage{Leave{SIGTERM}}, SignalGroup{SIGKILL}});
        CHECK(reap(group).finished_with(143));
    }
    SECTION("the death of a worker") {
        group << WorkerExited{LocalRank{0}, killed_by(SIGKILL), true};
        CHECK(group.actions ==
              Actions{ReportFailure{Generation{1}, LocalRank{0}, killed_by(SIGKILL), ""}, SignalGroup{SIGKILL}});
    }
}

TEST_CASE("a group that is being stopped is held, too, and its grace goes on", "[agent]") {
    Group group = stopping_after_failure();
    group << lease_ended(group);
    CHECK(group.actions == frozen());
    SECTION("reached in time") { CHECK((group << welcomed()).actions == continued()); }
    SECTION("not in time") { CHECK((group.after(kGrace) << Tick{}).actions == Actions{SignalGroup{SIGKILL}}); }
}

TEST_CASE("a group that is killed is not held, and a node without one only waits", "[agent]") {
    Group group = running();
    group << GuardLost{} << lease_ended(group);
    CHECK(group.actions.empty());
    Group idle;
    CHECK((idle << lease_ended(idle)).actions.empty());
    CHECK((idle << welcomed()).actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}});
}

TEST_CASE("the control group is thawed also if its last process has ended meanwhile: the next group is born in it",
          "[agent]") {
    Group group = stopping_after_failure();
    group << lease_ended(group);
    reap(group) << welcomed();
    CHECK(group.actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}});
    CHECK((group << Assigned{assignment(2)}).actions == Actions{StartWorkers{assignment(2)}});
}

TEST_CASE("a group that was to be started next is not, if the job has gone on", "[agent]") {
    Group group = running();
    group << Suspended{} << Assigned{assignment(2)};
    reap(group);  // waits for fg
    REQUIRE(group.state.next.has_value());
    group << lease_ended(group) << welcomed(true);
    CHECK(group.actions ==
          Actions{AdoptNames{"run", "n2", "s"}, SendMessage{GroupStopped{Generation{2}}}, ThawGroup{}});
    CHECK((group << Continued{}).actions.empty());
}

TEST_CASE("after the verdict the lease does not matter: nothing is started again", "[agent]") {
    Group group = running();
    group << JobFinished{verdict(Outcome::kStopped, 143)};
    CHECK((group << lease_ended(group)).actions.empty());
    CHECK_FALSE(group.state.frozen);
}

TEST_CASE("workers go on only when neither Ctrl-Z nor the lease holds them", "[agent]") {
    Group group = running();
    SECTION("suspended first") {
        group << Suspended{} << lease_ended(group);
        CHECK(group.actions == Actions{FreezeGroup{}});
        SECTION("reached first") {
            CHECK((group << welcomed()).actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}});
            CHECK((group << Continued{}).actions == Actions{ContinueGroup{}});
        }
        SECTION("continued first") {
            CHECK((group << Continued{}).actions.empty());
            CHECK((group << welcomed()).actions == continued());
        }
    }
    SECTION("frozen first") {
        group << lease_ended(group);
        CHECK((group << Suspended{}).actions.empty());
        CHECK((group << welcomed()).actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}});
        CHECK((group << Continued{}).actions == Actions{ContinueGroup{}});
    }
}

TEST_CASE("a start that is under way is held, and continued later", "[agent]") {
    Group group = running();
    group << lease_ended(group);
    CHECK((group << StartPaused{LocalRank{1}}).actions.empty());
    CHECK((group << StallCheckDue{}).actions.empty());
    Actions expected = continued();
    expected.emplace_back(StartMoreWorkers{LocalRank{1}});
    CHECK((group << welcomed()).actions == expected);
}

TEST_CASE("an abort of a generation whose assignment was lost with a connection is answered", "[agent]") {
    Group group = running();
    group << AbortReceived{Generation{1}, "a test"};
    reap(group) << AbortReceived{Generation{2}, "a node was lost"};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{2}}}});
}

TEST_CASE("workers that have waited for too long are killed, and the node goes on looking for the daemon", "[agent]") {
    Group group = running();
    group << lease_ended(group);
    group << HoldEnded{"the daemon is silent", group.now + 60s};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    CHECK(group.reason == "the daemon is silent; ending the workers of this node, which goes on looking for it");
    CHECK(group.reason_until == group.now + 60s);
    CHECK(reap(group).actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
    SECTION("it is reached") {
        group << welcomed(true);
        CHECK(group.actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}});
        CHECK((group << Assigned{assignment(3)}).actions == Actions{StartWorkers{assignment(3)}});
    }
    SECTION("it is given up") { CHECK((group << DaemonLost{"silent for too long"}).finished_with(69)); }
}

TEST_CASE("workers that were to start when the daemon fell silent still may, unless the node is lost", "[agent]") {
    Group group = running();
    group << Assigned{assignment(2)} << lease_ended(group);
    reap(group);
    CHECK((group << HoldEnded{"the daemon is silent", group.now + 60s}).actions.empty());
    SECTION("the daemon stood still itself") {
        group << welcomed();
        CHECK(group.actions == Actions{AdoptNames{"run", "n2", "s"}, ThawGroup{}, StartWorkers{assignment(2)}});
        CHECK((group << Assigned{assignment(2)}).actions.empty());
    }
    SECTION("it has lost the node") {
        group << welcomed(true);
        CHECK(group.actions ==
              Actions{AdoptNames{"run", "n2", "s"}, SendMessage{GroupStopped{Generation{2}}}, ThawGroup{}});
    }
}

TEST_CASE("when the wait is over, also the workers of a node that leaves are killed, once", "[agent]") {
    Group group = running();
    SECTION("they were frozen first, so that the signal killed them") {
        group << lease_ended(group) << StopSignal{SIGTERM};
    }
    SECTION("they had their grace") {
        group << StopSignal{SIGTERM} << lease_ended(group);
        CHECK((group << HoldEnded{"the daemon is silent", group.now + 60s}).actions == Actions{SignalGroup{SIGKILL}});
    }
    CHECK((group << HoldEnded{"the daemon is silent", group.now + 60s}).actions.empty());
    CHECK(reap(group).finished_with(143));
}

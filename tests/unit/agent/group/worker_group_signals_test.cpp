// The rows of docs/design/003-worker-group.md, one by one: signals, a lost guard, and the end.
#include "tests/catch.hpp"
#include "tests/unit/agent/group/group.hpp"

using namespace group_test;

TEST_CASE("a signal before any worker runs ends the agent at once", "[agent]") {
    const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP, SIGQUIT);
    Group group = Group() << StopSignal{signal};
    REQUIRE(group.actions.size() == 2);
    CHECK(group.actions[0] == Action{SendMessage{Leave{signal}}});
    CHECK(group.finished_with(128 + signal));
}

TEST_CASE("a drain sends Leave, gives the workers their grace and ends with 128 plus the signal", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM};
    CHECK(group.actions == Actions{SendMessage{Leave{SIGTERM}}, SignalGroup{SIGTERM}});
    group << WorkerExited{LocalRank{0}, exited(0)};
    CHECK(group.actions == Actions{ReportTimeouts{LocalRank{0}}});
    group << GroupReaped{};
    REQUIRE(group.actions.size() == 2);
    CHECK(group.actions[0] == Action{SendMessage{GroupStopped{Generation{1}}}});
    CHECK(group.finished_with(143));
}

TEST_CASE("workers get the signal that is meant for them, and processes that outlive the grace are killed", "[agent]") {
    Group group = running(1);
    group.state.handled_signals = {SIGUSR1, SIGINT};
    group << StopSignal{SIGUSR1};
    CHECK(group.actions == Actions{SendMessage{Leave{SIGUSR1}}, SignalGroup{SIGUSR1}});
    group.after(kGrace) << Tick{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    CHECK_THAT(group.reason, Catch::Contains("s after SIGUSR1; killing them"));
    group << WorkerExited{LocalRank{0}, killed_by(SIGKILL)} << GroupReaped{};
    CHECK(group.finished_with(128 + SIGUSR1));
    Group hung_up = running(1) << StopSignal{SIGHUP};
    CHECK(hung_up.actions == Actions{SendMessage{Leave{SIGHUP}}, SignalGroup{SIGTERM}});
}

TEST_CASE("workers that are ending by themselves get the signal a second after their group", "[agent]") {
    Group group = stopping_after_failure();
    CHECK(next_deadline(group.state) == kStart + kGrace);
    group << WorkersSpared{};
    CHECK(group.actions.empty());
    CHECK(next_deadline(group.state) == kStart + kSparedFor);
    group.after(kSparedFor - 1ms) << Tick{};
    CHECK(group.actions.empty());
    SECTION("if they still run") {
        group.after(1ms) << Tick{};
        CHECK(group.actions == Actions{SignalSpared{}});
        CHECK(next_deadline(group.state) == kStart + kGrace);
        CHECK((group << Tick{}).actions.empty());
    }
    SECTION("but not after SIGKILL") {
        group << GuardLost{};
        CHECK(group.actions == Actions{SignalGroup{SIGKILL}, DropConnection{}});
        CHECK((group.after(1s) << Tick{}).actions.empty());
    }
    SECTION("but not when the group is reaped") {
        group << WorkerExited{LocalRank{1}, exited(3), true} << GroupReaped{};
        CHECK_FALSE(next_deadline(group.state));
        CHECK((group.after(1s) << Tick{}).actions.empty());
    }
}

TEST_CASE("the last line of a drained node names the signal and counts the stopped workers", "[agent]") {
    const auto last_line = [](const Group& group) { return std::get<Finish>(group.actions.back()).why; };
    CHECK(last_line(Group() << StopSignal{SIGINT}) == "interrupted by SIGINT; no worker was running");
    Group group = running(2) << StopSignal{SIGTERM} << WorkerExited{LocalRank{0}, exited(0)};
    group << WorkerExited{LocalRank{1}, exited(0)} << GroupReaped{};
    CHECK(last_line(group) == "interrupted by SIGTERM: 2 workers stopped on this node");
    Assignment alone = assignment(1);
    alone.node_count = 1;
    Group single = Group(1) << Assigned{alone} << StopSignal{SIGINT} << WorkerExited{LocalRank{0}, exited(0)};
    CHECK(last_line(single << GroupReaped{}) == "interrupted by SIGINT: 1 worker stopped on 1 node");
}

TEST_CASE("workers that the stop signal ended just before it reached the agent count as stopped", "[agent]") {
    Group group = running(2) << WorkerExited{LocalRank{0}, killed_by(SIGTERM), true};
    group << WorkerExited{LocalRank{1}, killed_by(SIGTERM)} << GroupReaped{};
    const bool late = GENERATE(false, true);
    group.after(late ? 1000ms : 999ms) << StopSignal{SIGTERM};
    CHECK(std::get<Finish>(group.actions.back()).why ==
          (late ? "interrupted by SIGTERM; no worker was running"
                : "interrupted by SIGTERM: 2 workers stopped on this node"));
}

TEST_CASE("a start that fails because of the node is not a failure of the program", "[agent]") {
    const auto code = [](Errc errc) {
        const Group group = running() << SpawnFailed{LocalRank{1}, {errc, "cannot fork"}};
        return std::get<ReportFailure>(group.actions.at(0)).status;
    };
    CHECK(code(Errc::kLimit) == exited(exit_code::kInfrastructure));
    CHECK(code(Errc::kSystem) == exited(exit_code::kInternal));
}

TEST_CASE("a verdict that arrives during a drain is the exit code", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM} << JobFinished{verdict(Outcome::kWorkerFailed, 9)};
    group << WorkerExited{LocalRank{0}, exited(0)} << GroupReaped{};
    CHECK(group.finished_with(9));
}

TEST_CASE("a signal to every process of a job has one last line, whichever process reports it first", "[agent]") {
    const Happening stopped = JobFinished{verdict(Outcome::kStopped, 143)};
    const Happening first = WorkerExited{LocalRank{0}, killed_by(SIGTERM), true};
    const Happening last = WorkerExited{LocalRank{1}, killed_by(SIGTERM)};
    Group group = running(2);
    SECTION("this process") { group << StopSignal{SIGTERM} << stopped << first << last; }
    SECTION("the daemon") { group << stopped << StopSignal{SIGTERM} << first << last; }
    SECTION("the daemon, then a worker") { group << stopped << first << StopSignal{SIGTERM} << last; }
    SECTION("a worker, then the daemon") { group << first << stopped << StopSignal{SIGTERM} << last; }
    group << GroupReaped{};
    CHECK(group.finished_with(143));
    CHECK(std::get<Finish>(group.actions.back()).why == "interrupted by SIGTERM: 2 workers stopped on this node");
}

TEST_CASE("a second interrupt kills at once, but not within half a second of the first", "[agent]") {
    const int signal = GENERATE(SIGINT, SIGTERM);
    Group group = running() << StopSignal{SIGINT};
    group.after(499ms) << StopSignal{signal};
    CHECK(group.actions.empty());
    group.after(1ms) << StopSignal{signal};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << StopSignal{signal};
    CHECK(group.actions.empty());
}

TEST_CASE("a second hang-up does not kill", "[agent]") {
    Group group = running() << StopSignal{SIGHUP};
    group.after(5s) << StopSignal{SIGHUP};
    CHECK(group.actions.empty());
}

TEST_CASE("a node that leaves starts no workers but answers assignments", "[agent]") {
    Group group = running(1) << StopSignal{SIGTERM} << Assigned{assignment(2)};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{2}}}});
}

TEST_CASE("workers get the signal to another node that ends the job, as that node's do", "[agent]") {
    const auto signal_of = [](const AbortReceived& abort) {
        Group group = running(1);
        group.state.handled_signals = {SIGTERM, SIGINT};
        group << abort;
        return std::get<SignalGroup>(group.actions.at(0)).signal;
    };
    CHECK(signal_of({Generation{1}, "node n1 was interrupted by SIGINT", SIGINT}) == SIGINT);
    CHECK(signal_of({Generation{1}, "node n1 was interrupted by SIGQUIT", SIGQUIT}) == SIGTERM);  // not handled
    CHECK(signal_of({Generation{1}, "a hostile daemon", SIGKILL}) == SIGTERM);
    CHECK(signal_of({Generation{1}, "node n1 was lost"}) == SIGTERM);
}

TEST_CASE("a notification reaches running workers, is forwarded to the other nodes, and stops no worker", "[agent]") {
    Group group = running() << NotifySignal{SIGUSR2};
    CHECK(group.actions == Actions{NotifyWorkers{SIGUSR2}, ForwardSignal{Generation{1}, SIGUSR2}});
    CHECK(group.state.phase == Phase::kRunning);
    group << NotifyReceived{Generation{1}, SIGUSR1, 1};
    CHECK(group.actions.at(0) == Action{NotifyWorkers{SIGUSR1}});
    CHECK((group << NotifyReceived{Generation{1}, SIGKILL, 2}).actions.empty());
    CHECK((group << NotifyReceived{Generation{2}, SIGUSR2, 3}).actions.empty());
    Assignment alone = assignment(1);
    alone.node_count = 1;
    CHECK((Group() << Assigned{alone} << NotifySignal{SIGUSR2}).actions == Actions{NotifyWorkers{SIGUSR2}});
}

TEST_CASE("without workers a notification is a line for LOGLEVEL=debug", "[agent]") {
    CHECK((Group() << NotifySignal{SIGUSR2}).actions ==
          Actions{PrintDetail{"got SIGUSR2; no worker runs that could get it"}});
    CHECK((Group() << NotifyReceived{Generation{1}, SIGUSR2, 1}).actions.empty());
    Group stopping = stopping_after_failure() << NotifySignal{SIGUSR2};
    CHECK(std::holds_alternative<PrintDetail>(stopping.actions.at(0)));
    CHECK((stopping << NotifyReceived{Generation{1}, SIGUSR2, 1}).actions.empty());
}

namespace {

bool is_delivered(const Group& group) {
    return !group.actions.empty() && std::holds_alternative<NotifyWorkers>(group.actions.front());
}

NotifyReceived forwarded(std::uint64_t number) { return {Generation{1}, SIGUSR2, number}; }

}  // namespace

TEST_CASE("a notification that a scheduler sends to every node is delivered once", "[agent]") {
    Group first = running() << NotifySignal{SIGUSR2};
    CHECK(is_delivered(first));
    CHECK_FALSE(is_delivered(first << forwarded(1)));
    CHECK(is_delivered(first << NotifySignal{SIGUSR2}));  // a second one to this process is meant
    CHECK_FALSE(is_delivered(first << forwarded(2)));
    CHECK(is_delivered(first.after(kSameNotification) << forwarded(3)));
    Group second = running() << forwarded(1);
    CHECK(is_delivered(second));
    CHECK_FALSE(is_delivered(second << NotifySignal{SIGUSR2}));
    CHECK(second.actions == Actions{ForwardSignal{Generation{1}, SIGUSR2, true}});  // the daemon tells it from a second
    CHECK(is_delivered(second << NotifySignal{SIGUSR2}));
}

TEST_CASE("two signals that a scheduler sends to every node within a second are delivered twice", "[agent]") {
    const NotifySignal own{SIGUSR2};
    const auto deliveries = [](std::initializer_list<Happening> events) {
        Group group = running();
        int count = 0;
        for (const Happening& event : events) count += is_delivered(group << event) ? 1 : 0;
        return count;
    };
    CHECK(deliveries({own, own, forwarded(1), forwarded(2)}) == 2);
    CHECK(deliveries({forwarded(1), forwarded(2), own, own}) == 2);
    CHECK(deliveries({own, forwarded(1), forwarded(2), own}) == 2);
    CHECK(deliveries({forwarded(1), own, own, forwarded(2)}) == 2);
}

TEST_CASE("a notification that is repeated after a reconnect is that which this process got at that time", "[agent]") {
    NotifyReceived repeated = forwarded(1);
    repeated.ago = 3s;
    Group same = running() << NotifySignal{SIGUSR2};
    CHECK_FALSE(is_delivered(same.after(3s) << repeated));
    Group other = running();
    CHECK(is_delivered(other.after(3s) << repeated));
    NotifyReceived later = forwarded(2);
    later.ago = 500ms;
    Group twice = running() << NotifySignal{SIGUSR2};
    twice.after(2500ms) << NotifySignal{SIGUSR2};
    twice.after(500ms) << repeated;
    CHECK_FALSE(is_delivered(twice << later));
}

TEST_CASE("notifications of another node differ by their numbers, not by time", "[agent]") {
    Group group = running() << forwarded(1);
    CHECK(is_delivered(group));
    CHECK(is_delivered(group << forwarded(2)));
    // Both are repeated after a reconnect, and so is one that this node got itself.
    CHECK_FALSE(is_delivered(group.after(2s) << forwarded(1)));
    CHECK_FALSE(is_delivered(group << forwarded(2)));
    Group both = running() << NotifySignal{SIGUSR2} << forwarded(1);
    CHECK_FALSE(is_delivered(both.after(2s) << forwarded(1)));
}

TEST_CASE("a stop that lasts names the workers that it waits for", "[agent]") {
    Group group = running(3) << StopSignal{SIGINT};
    CHECK(next_deadline(group.state) == kStart + kStopWaitReportedAfter);
    group << WorkerExited{LocalRank{1}, killed_by(SIGTERM)};
    group.after(kStopWaitReportedAfter) << Tick{};
    CHECK(group.actions ==
          Actions{PrintStopWait{"got SIGINT: waiting up to 29 s for 2 workers to end (ranks 2, 4); Ctrl-C again kills "
                                "them now"}});
    CHECK(next_deadline(group.state) == kStart + kGrace);
    CHECK((group << Tick{}).actions.empty());
    Group strays = running(1) << StopSignal{SIGTERM} << WorkerExited{LocalRank{0}, killed_by(SIGTERM)};
    strays.after(kStopWaitReportedAfter) << Tick{};
    CHECK(strays.actions == Actions{PrintStopWait{"got SIGTERM: waiting up to 29 s for the processes that the workers "
                                                  "have started; another SIGTERM kills them now"}});
    Group killed = running(1) << StopSignal{SIGINT};
    killed.after(1s) << StopSignal{SIGINT};
    CHECK(killed.after(kStopWaitReportedAfter).state.wait_reported_at == std::nullopt);
}

TEST_CASE("a failure before the signal is in the last line", "[agent]") {
    const auto end = [](Group group) {
        group << WorkerExited{LocalRank{1}, killed_by(SIGTERM)} << GroupReaped{};
        return std::get<Finish>(group.actions.back());
    };
    const AbortReceived failed{Generation{1}, "rank 2 on n1 exited with code 3: out of paper", 0, true};
    Group here = running() << WorkerExited{LocalRank{0}, exited(3), true};
    SECTION("without the daemon's description, which has not come yet") {
        CHECK_THAT(end(here << StopSignal{SIGINT}).why,
                   Catch::EndsWith("; before the signal: rank 2 exited with code 3"));
    }
    SECTION("with it") {
        const Finish finish = end(here << failed << StopSignal{SIGINT});
        CHECK(finish.why ==
              "interrupted by SIGINT: 1 worker stopped on this node; before the signal: rank 2 on n1 exited with code "
              "3: out of paper");
        CHECK(finish.failure == failed.reason);
    }
    SECTION("of another node") {
        Group group = running() << failed << StopSignal{SIGINT} << WorkerExited{LocalRank{0}, killed_by(SIGTERM)};
        const Finish finish = end(group);
        CHECK_THAT(finish.why, Catch::EndsWith("before the signal: " + failed.reason));
        CHECK(finish.failure.empty());  // that node reports it
    }
    SECTION("but not one that came after the signal") {
        Group group = running() << StopSignal{SIGINT} << failed << WorkerExited{LocalRank{0}, exited(3), true};
        CHECK_THAT(end(group).why, !Catch::Contains("before"));
    }
    SECTION("but not the end by the same signal, which a scheduler sent to every process") {
        Group group = running() << WorkerExited{LocalRank{0}, killed_by(SIGTERM), true} << StopSignal{SIGTERM};
        CHECK_THAT(end(group << failed).why, !Catch::Contains("before"));
    }
    SECTION("but not of an older group") {
        Group group = here << WorkerExited{LocalRank{1}, killed_by(SIGTERM)} << GroupReaped{}
                           << Assigned{assignment(2)};
        CHECK_THAT(end(group << WorkerExited{LocalRank{0}, exited(0)} << StopSignal{SIGINT}).why,
                   !Catch::Contains("before"));
    }
}

TEST_CASE("Ctrl-Z stops the workers until they are continued", "[agent]") {
    Group group = running() << Suspended{};
    CHECK(group.actions == Actions{SuspendGroup{}});
    CHECK((group << Suspended{}).actions.empty());
    CHECK((group << StallCheckDue{}).actions.empty());
    group << Continued{};
    CHECK(group.actions == Actions{ContinueGroup{}});
    CHECK((group << Continued{}).actions.empty());  // not of processes that a user stopped one by one
}

TEST_CASE("while a node is suspended it starts no workers", "[agent]") {
    Group group = Group() << Suspended{} << Assigned{assignment(1)};
    CHECK(group.actions.empty());
    group << Continued{};
    CHECK(group.actions == Actions{StartWorkers{assignment(1)}});
    group << Suspended{} << StartPaused{LocalRank{1}};
    CHECK(group.actions.empty());
    SECTION("and goes on with a start in progress") {
        group << Continued{};
        CHECK(group.actions == Actions{ContinueGroup{}, StartMoreWorkers{LocalRank{1}}});
    }
    SECTION("and gives it up when the group is stopped") {
        group << AbortReceived{Generation{1}, "a node was lost"};
        CHECK(group.actions == Actions{EndStart{}, SignalGroup{SIGTERM}});
        group << WorkerExited{LocalRank{0}, killed_by(SIGTERM)} << GroupReaped{};
        CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
        CHECK((group << Continued{}).actions.empty());
    }
}

TEST_CASE("without its guard the agent kills at once, and does not keep the daemon waiting for its workers",
          "[agent]") {
    Group group = running(1) << GuardLost{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}, DropConnection{}});
    group << WorkerExited{LocalRank{0}, killed_by(SIGKILL)} << GroupReaped{};
    CHECK(group.finished_with(exit_code::kInfrastructure));
    Group idle = Group() << GuardLost{};
    CHECK(idle.actions.front() == Action{DropConnection{}});
    CHECK(idle.finished_with(exit_code::kInfrastructure));
}

TEST_CASE("strays that outlive the grace after a success are killed, and the success stands", "[agent]") {
    Group group = running(1) << WorkerExited{LocalRank{0}, exited(0)};
    group.after(kGrace) << Tick{};
    CHECK(group.actions == Actions{SignalGroup{SIGKILL}});
    group << GroupReaped{};
    CHECK(group.actions.empty());
    CHECK(group.state.phase == Phase::kSucceeded);
}

TEST_CASE("after the end events have no effect", "[agent]") {
    Group group = Group() << StopSignal{SIGINT};
    group << Assigned{assignment(1)};
    CHECK(group.actions.empty());
    CHECK(group.state.phase == Phase::kDone);
}

TEST_CASE("SIGUSR1 gives the job notice of a preemption", "[agent]") {
    const Action notice = SendMessage{PreemptionNotice{.reason = "SIGUSR1", .by_signal = true}};
    Group group = running() << NotifySignal{SIGUSR1};
    CHECK(group.actions == Actions{notice, NotifyWorkers{SIGUSR1}, ForwardSignal{Generation{1}, SIGUSR1, false}});
    group << NotifySignal{SIGUSR2};
    CHECK(group.actions == Actions{NotifyWorkers{SIGUSR2}, ForwardSignal{Generation{1}, SIGUSR2, false}});
    SECTION("also before workers run") {
        Group early = Group() << NotifySignal{SIGUSR1};
        CHECK(early.actions.front() == notice);
    }
    SECTION("but not from a node that leaves") {
        group << StopSignal{SIGTERM} << NotifySignal{SIGUSR1};
        CHECK(std::ranges::count(group.actions, notice) == 0);
    }
    SECTION("and so does the time limit") {
        group << TimeLimitNear{"the time limit"};
        CHECK(group.actions == Actions{SendMessage{PreemptionNotice{.reason = "the time limit"}}});
    }
}

TEST_CASE("workers get notice of a preemption once, and the step when it is known", "[agent]") {
    const bool by_signal = GENERATE(false, true);
    Preempt notice{.generation = Generation{1}, .reason = "n2 got SIGUSR1", .by_signal = by_signal};
    Group group = running() << PreemptReceived{notice};
    REQUIRE(group.actions.size() == (by_signal ? 2 : 3));
    CHECK(group.actions.front() == Action{GiveNotice{notice}});
    // Their SIGUSR1 comes as any other node's does.
    CHECK(std::ranges::count(group.actions, Action{NotifyWorkers{SIGUSR1}}) == (by_signal ? 0 : 1));
    CHECK((group << PreemptReceived{notice}).actions.empty());  // after a reconnect
    notice.time_left = 5'000ms;
    CHECK((group << PreemptReceived{notice}).actions.front() == Action{GiveNotice{notice}});  // the file names it
    notice.time_left = 4'900ms;
    CHECK((group.after(50ms) << PreemptReceived{notice}).actions.empty());
    notice.stop_at = 12;
    CHECK((group << PreemptReceived{notice}).actions == Actions{SetStop{12}});
    Preempt other = notice;
    other.generation = Generation{2};
    CHECK((group << PreemptReceived{other}).actions.empty());
}

TEST_CASE("a worker that exits with 75 has failed, or stopped at the notice", "[agent]") {
    Group group = running();
    SECTION("failed") {
        group << WorkerExited{LocalRank{0}, exited(75)};
        CHECK(group.state.phase == Phase::kStopping);
    }
    SECTION("stopped") {
        group << PreemptReceived{Preempt{.generation = Generation{1}, .reason = "", .by_signal = true}};
        group << WorkerExited{LocalRank{0}, exited(75)};
        CHECK(group.actions ==
              Actions{ReportTimeouts{LocalRank{0}}, SendMessage{WorkerFinished{Generation{1}, Rank{2}}}});
        group << WorkerExited{LocalRank{1}, exited(0)};
        CHECK(group.actions[1] == Action{SendMessage{GroupSucceeded{Generation{1}, true}}});
        SECTION("but not in the next group, which has no notice yet") {
            group << GroupReaped{} << Assigned{assignment(2)} << WorkerExited{LocalRank{0}, exited(75)};
            CHECK(group.state.phase == Phase::kStopping);
        }
    }
    SECTION("stopped at the signal, before the daemon's notice came back") {
        const bool own = GENERATE(false, true);
        if (own)
            group << NotifySignal{SIGUSR1};
        else
            group << NotifyReceived{Generation{1}, SIGUSR1, 1};
        group << WorkerExited{LocalRank{0}, exited(75)};
        CHECK(group.state.phase == Phase::kRunning);
    }
    SECTION("and another code is a failure in any case") {
        group << PreemptReceived{Preempt{.generation = Generation{1}, .reason = "", .by_signal = true}};
        group << WorkerExited{LocalRank{0}, exited(76)};
        CHECK(group.state.phase == Phase::kStopping);
    }
}

TEST_CASE("the notice for a group that cannot start yet waits for it", "[agent]") {
    Preempt notice{.generation = Generation{2}, .reason = "n2 got SIGUSR1", .by_signal = true};
    Group group = running() << WorkerExited{LocalRank{0}, exited(0)} << WorkerExited{LocalRank{1}, exited(0)};
    group << Assigned{assignment(2)};  // processes that the workers have left behind are still there
    CHECK((group << PreemptReceived{notice}).actions.empty());
    notice.stop_at = 1;
    CHECK((group << PreemptReceived{notice}).actions.empty());
    group << GroupReaped{};
    REQUIRE(group.actions.size() == 5);  // after the report that the group before has ended
    CHECK(group.actions[1] == Action{StartWorkers{assignment(2)}});
    CHECK(group.actions[2] == Action{GiveNotice{notice}});
    CHECK(group.actions[4] == Action{SetStop{1}});
}

TEST_CASE("after a notice by a signal one of another kind signals the workers again", "[agent]") {
    Preempt notice{.generation = Generation{1}, .reason = "n2 got SIGUSR1", .by_signal = true};
    Group group = running() << PreemptReceived{notice};
    notice.by_signal = false;
    notice.reason = "the time limit";
    group << PreemptReceived{notice};
    CHECK(group.actions.front() == Action{GiveNotice{notice}});
    CHECK(group.actions.back() == Action{NotifyWorkers{SIGUSR1}});
    CHECK((group << PreemptReceived{notice}).actions.empty());
}

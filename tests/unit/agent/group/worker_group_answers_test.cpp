// Events that the worker group answers without a change of its phase: a start in slices, flight records, status lines.
#include "tests/catch.hpp"
#include "tests/unit/agent/group/group.hpp"

using namespace group_test;

namespace {

RequestRecords request(int generation) {
    RequestRecords r;
    r.generation = Generation{generation};
    r.request = 7;
    r.operations = 2'000;
    return r;
}

}  // namespace

TEST_CASE("a paused start goes on while the group runs and is given up when it is being stopped", "[agent]") {
    Group group = running(3) << StartPaused{LocalRank{1}};
    CHECK(group.actions == Actions{StartMoreWorkers{LocalRank{1}}});
    group << AbortReceived{Generation{1}, "a node was lost"} << StartPaused{LocalRank{2}};
    CHECK(group.actions == Actions{EndStart{}});
    CHECK(group.state.running == std::set<LocalRank>{LocalRank{0}, LocalRank{1}});
    for (const int rank : {0, 1}) group << WorkerExited{LocalRank{rank}, killed_by(SIGTERM)};
    group << GroupReaped{};
    CHECK(group.actions == Actions{SendMessage{GroupStopped{Generation{1}}}});
}

TEST_CASE("flight records of all workers are sent one by one, with few operations each", "[agent]") {
    Group group = running(2) << RecordsRequested{request(1)};
    RequestRecords few = request(1);
    few.operations = kOperationsShownOfAll;
    CHECK(group.actions == Actions{SendRecord{few, LocalRank{0}, false}});
    group << RecordSent{few, LocalRank{0}};
    CHECK(group.actions == Actions{SendRecord{few, LocalRank{1}, true}});
    group << RecordSent{few, LocalRank{1}};
    CHECK(group.actions.empty());
}

TEST_CASE("the flight record of one rank is sent by the node that has it, and of the latest group only", "[agent]") {
    Group group = running(2);
    RequestRecords one = request(1);
    one.rank = Rank{3};
    group << RecordsRequested{one};
    CHECK(group.actions == Actions{SendRecord{one, LocalRank{1}, true}});
    for (const int other : {1, 4}) {
        one.rank = Rank{other};
        CHECK((group << RecordsRequested{one}).actions.empty());
    }
    CHECK((group << RecordsRequested{request(2)}).actions.empty());
    CHECK((group << RecordSent{request(2), LocalRank{0}}).actions.empty());
    CHECK((Group() << RecordsRequested{request(-1)}).actions.empty());
}

TEST_CASE("running workers are checked for stalls, and others are not", "[agent]") {
    Group group = running(2) << StallCheckDue{};
    CHECK(group.actions == Actions{CheckForStalls{{LocalRank{0}, LocalRank{1}}}});
    group << WorkerExited{LocalRank{0}, exited(0)} << StallCheckDue{};
    CHECK(group.actions == Actions{CheckForStalls{{LocalRank{1}}}});
    CHECK((stopping_after_failure() << StallCheckDue{}).actions.empty());
    CHECK((Group() << StallCheckDue{}).actions.empty());
}

TEST_CASE("a notice is printed if it is about the latest group", "[agent]") {
    Group group = running() << NoticeReceived{{Generation{1}, "rank 1 is late"}};
    CHECK(group.actions == Actions{PrintNotice{"rank 1 is late"}});
    CHECK((group << NoticeReceived{{Generation{0}, "rank 2 is late"}}).actions.empty());
}

TEST_CASE("names, waits, connections and problems with log files are passed on", "[agent]") {
    Group group;
    CHECK((group << Welcomed{"run", "n12#2", "a7"}).actions == Actions{AdoptNames{"run", "n12#2", "a7"}});
    CHECK((group << WaitReceived{"1 of 2 nodes"}).actions == Actions{PrintWait{"1 of 2 nodes"}});
    CHECK((group << ConnectionChanged{"connecting again"}).actions == Actions{PrintConnection{"connecting again"}});
    CHECK((group << LogFileProblem{"disk full"}).actions == Actions{PrintLogFileProblem{"disk full"}});
    group << StopSignal{SIGINT};
    CHECK(group.state.phase == Phase::kDone);
    CHECK((group << WaitReceived{"1 of 2 nodes"}).actions.empty());
    CHECK((group << LogFileProblem{"disk full"}).actions == Actions{PrintLogFileProblem{"disk full"}});
}

TEST_CASE("a step that begins a stop announces that its outcome follows", "[agent]") {
    const auto follows = [](const Happening& what) { return (running() << what).outcome_follows; };
    CHECK(follows(WorkerExited{LocalRank{0}, killed_by(SIGSEGV)}));
    CHECK(follows(SpawnFailed{LocalRank{0}, {Errc::kLimit, "cannot fork"}}));
    CHECK(follows(AbortReceived{Generation{1}, "a node was lost"}));
    CHECK(follows(DaemonLost{"connection closed"}));
    CHECK(follows(StopSignal{SIGTERM}));
    CHECK_FALSE(follows(StallCheckDue{}));
    Group late = stopping_after_failure();
    late.after(kGrace) << Tick{};
    CHECK_FALSE(late.reason.empty());
    CHECK_FALSE(late.outcome_follows);
}

TEST_CASE("the reason of a stop signal replaces earlier reasons, and a kill is reported at once", "[agent]") {
    Group group = stopping_after_failure();
    CHECK_FALSE(group.supersedes_reasons);
    group << StopSignal{SIGINT};
    CHECK((group.supersedes_reasons && group.outcome_follows));
    group.after(1s) << StopSignal{SIGINT};
    CHECK(group.reason == "got SIGINT again; killing the workers");
    CHECK((group.supersedes_reasons && !group.outcome_follows));
    Group killed = stopping_after_failure();
    killed.after(kGrace) << Tick{} << StopSignal{SIGINT};
    CHECK((killed.supersedes_reasons && !killed.outcome_follows));
}

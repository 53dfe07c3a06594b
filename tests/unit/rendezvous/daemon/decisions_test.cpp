// Decisions: the coordinator and the inquiries, composed.
#include "rendezvous/daemon/decisions.hpp"

#include <chrono>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;
using daemon::DaemonAction;
using daemon::Decisions;

namespace {

constexpr const char* kNode = "a";

/// Adds one event and returns the actions of everything that follows from it.
std::vector<DaemonAction> handle(Decisions& decisions, daemon::DaemonHappening what, TimePoint now) {
    std::vector<DaemonAction> actions;
    decisions.add(std::move(what), now);
    while (auto step = decisions.next())
        for (DaemonAction& action : step->actions) actions.push_back(std::move(action));
    return actions;
}

template <typename Kind>
std::vector<Kind> of_kind(const std::vector<DaemonAction>& actions) {
    std::vector<Kind> found;
    for (const DaemonAction& action : actions)
        if (const auto* one = std::get_if<Kind>(&action)) found.push_back(*one);
    return found;
}

coordinator::NodeMessage from_node(AgentMessage message) { return {kNode, std::move(message)}; }

/// One node with two workers, generation 1.
Decisions running(TimePoint now) {
    Decisions decisions(coordinator::Config{.run_id = "run"});
    Join join;
    join.node = join.host = kNode;
    join.programs[0].slots = 2;
    join.records = true;
    const auto joined = handle(decisions, from_node(join), now);
    REQUIRE(of_kind<coordinator::OpenStore>(joined).size() == 1);
    (void)handle(decisions, coordinator::StoreOpened{Generation{1}, 4000}, now);
    REQUIRE(decisions.job().phase == coordinator::Phase::kRunning);
    return decisions;
}

WorkerFailed killed(Rank rank) {
    WorkerFailed message;
    message.generation = Generation{1};
    message.failure.rank = rank;
    message.failure.host = kNode;
    message.failure.pid = 71;
    message.failure.status = {ExitStatus::Kind::kSignaled, 9, false};
    message.failure.activity = "had done no collective";
    return message;
}

}  // namespace

TEST_CASE("a failure is diagnosed before its stop is concluded, by events of one time", "[daemon][unit]") {
    TimePoint now{1000s};
    Decisions decisions = running(now);
    now += 1s;
    const auto failed = handle(decisions, from_node(killed(Rank{1})), now);
    const auto requests = of_kind<diagnosis::ToAgent>(failed);
    REQUIRE(requests.size() == 1);
    const auto& request = std::get<RequestRecords>(requests[0].message);
    CHECK(decisions.job().group.diagnosis_pending_since == now);
    CHECK(decisions.job().now == now);

    // The group has stopped, but its verdict waits for the diagnosis.
    (void)handle(decisions, from_node(GroupStopped{Generation{1}}), now);
    CHECK_FALSE(decisions.job().verdict);
    RecordReply reply{Generation{1}, request.request, true, {}};
    reply.record.rank = Rank{0};
    reply.record.host = kNode;
    const auto answered = handle(decisions, from_node(reply), now);
    CHECK(of_kind<coordinator::EndDaemon>(answered).size() == 1);
    REQUIRE(decisions.job().verdict);
    CHECK_THAT(decisions.job().verdict->diagnosis, Catch::StartsWith("DEAD rank 1 (node a, killed by SIGKILL)"));
    CHECK_FALSE(decisions.next());
}

TEST_CASE("a diagnosis without an answer is concluded by a tick", "[daemon][unit]") {
    TimePoint now{1000s};
    Decisions decisions = running(now);
    (void)handle(decisions, from_node(killed(Rank{1})), now);
    (void)handle(decisions, from_node(GroupStopped{Generation{1}}), now);
    std::vector<coordinator::EndDaemon> ends;
    for (; ends.empty() && now < TimePoint{1010s}; now += coordinator::kTickInterval)
        ends = of_kind<coordinator::EndDaemon>(handle(decisions, coordinator::Tick{}, now));
    REQUIRE(ends.size() == 1);
    CHECK(decisions.job().verdict);
    CHECK(now - TimePoint{1000s} <= diagnosis::kFailureTimeout + 2 * coordinator::kTickInterval);
}

TEST_CASE("messages of inspectors do not reach the coordinator", "[daemon][unit]") {
    const TimePoint now{1000s};
    Decisions decisions = running(now);
    const diagnosis::InspectorId inspector{1};
    const auto asked = handle(decisions, diagnosis::InspectionRequested{inspector, {1, {}, 16}}, now + 1s);
    CHECK(of_kind<diagnosis::ToAgent>(asked).size() == 1);
    CHECK(is_open(decisions.inquiries(), inspector));
    CHECK(decisions.job().now == now);
    CHECK(handle(decisions, diagnosis::InspectorLeft{inspector}, now + 1s).empty());
    CHECK_FALSE(is_open(decisions.inquiries(), inspector));
}

#pragma once
// A running job and the flight records of its nodes, for tests of inquiries.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/inquiry/inquiries.hpp"
#include "tests/catch.hpp"

namespace ddprun::daemon {

using namespace protocol;
using namespace diagnosis;
using namespace coordinator;

inline const TimePoint kStart{std::chrono::hours(1)};
inline constexpr InspectorId kInspector{7};

/// Two nodes of two workers each, generation 5, ranks 0-1 on "a" and 2-3 on "b".
inline State running() {
    State state{Config{.run_id = "run"}};
    state.phase = Phase::kRunning;
    state.generation = state.group.generation = Generation{5};
    int base = 0;
    for (const char* name : {"a", "b"}) {
        Node node;
        node.join.host = name;
        node.join.programs[0].slots = 2;
        node.join.records = true;
        state.nodes.add(name, node);
        Member& member = state.group.members[name];
        member.assignment.generation = Generation{5};
        member.assignment.rank_base = base;
        member.assignment.world_size = 4;
        base += 2;
    }
    return state;
}

inline RankRecord record(int rank, bool waits) {
    RankRecord record;
    record.rank = Rank{rank};
    record.host = rank < 2 ? "a" : "b";
    record.process = ProcessState::kRunning;
    record.view.written = true;
    record.view.groups.push_back({"world", rank, 4, {{0, 4, 1}}, true, waits ? 1u : 0u, waits ? 1u : 0u, 0});
    if (waits) {
        RecordedOperation& operation = record.view.operations.emplace_back();
        operation.id = operation.seq = 1;
        operation.group = 0;
        operation.op = "barrier";
        operation.started_ago = operation.waited_ago = std::chrono::seconds(31);
    }
    return record;
}

inline Stalled stall(std::uint64_t seq = 1) {
    return {Generation{5}, Rank{0}, "world", seq, 0, std::chrono::seconds(31)};
}

template <typename Message>
std::vector<std::pair<NodeId, Message>> to_agents(const InquiryActions& actions) {
    std::vector<std::pair<NodeId, Message>> result;
    for (const InquiryAction& action : actions) {
        const auto* to_agent = std::get_if<ToAgent>(&action);
        if (to_agent == nullptr) continue;
        if (const auto* message = std::get_if<Message>(&to_agent->message))
            result.emplace_back(to_agent->node, *message);
    }
    return result;
}

inline const Inspected* inspected(const InquiryActions& actions) {
    for (const InquiryAction& action : actions) {
        const auto* answer = std::get_if<ToInspector>(&action);
        if (answer == nullptr) continue;
        if (const auto* end = std::get_if<Inspected>(&answer->message)) return end;
    }
    return nullptr;
}

inline RecordReply shown(std::uint64_t request, int rank, bool waits, bool last) {
    return {Generation{5}, request, last, record(rank, waits)};
}

/// Keeps the state of the inquiries between steps: each function is one event.
class Inquiries {
public:
    InquiryActions stalled(const State& job, const NodeId& from, const Stalled& report, TimePoint now) {
        return handle(job, now, StallReported{from, report});
    }
    InquiryActions failed(const State& job, TimePoint now) { return handle(job, now, FailureReported{}); }
    InquiryActions shown(const State& job, const NodeId& from, const RecordReply& record, TimePoint now) {
        return handle(job, now, RecordReceived{from, record});
    }
    InquiryActions inspect(const State& job, InspectorId inspector, const Inspect& request, TimePoint now) {
        return handle(job, now, InspectionRequested{inspector, request});
    }
    InquiryActions leave(const State& job, InspectorId inspector) {
        return handle(job, kStart, InspectorLeft{inspector});
    }
    InquiryActions tick(const State& job, TimePoint now) { return handle(job, now, InquiryTick{}); }
    [[nodiscard]] bool is_open(InspectorId inspector) const { return diagnosis::is_open(state_, inspector); }

private:
    InquiryActions handle(const State& job, TimePoint now, InquiryHappening what) {
        InquiryStep result = step(std::move(state_), job, {now, std::move(what)});
        state_ = std::move(result.next);
        return std::move(result.actions);
    }
    InquiryState state_;
};

inline InquiryActions show(Inquiries& inquiries, const State& state, const NodeId& from, const RecordReply& record,
                           TimePoint now = kStart) {
    return inquiries.shown(state, from, record, now);
}

/// All four ranks answer; rank `late` has not arrived.
inline InquiryActions answer(Inquiries& inquiries, const State& state, const InquiryActions& question, TimePoint now,
                             int late = 3) {
    const auto asked = to_agents<RequestRecords>(question);
    REQUIRE(asked.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        end = show(inquiries, state, rank < 2 ? "a" : "b",
                   shown(asked[0].second.request, rank, rank != late, rank % 2 == 1), now);
    }
    return end;
}

}  // namespace ddprun::daemon

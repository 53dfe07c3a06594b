#pragma once
// A running job and what its nodes show of it, for tests of inquiries.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/daemon/inquiries.hpp"
#include "tests/catch.hpp"

namespace ddprun::daemon {

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
        Node& node = state.nodes[name];
        node.join.host = name;
        node.join.slots = 2;
        node.join.boards = true;
        Member& member = state.group.members[name];
        member.assignment.generation = Generation{5};
        member.assignment.rank_base = base;
        member.assignment.world_size = 4;
        base += 2;
    }
    return state;
}

inline RankBoard board(int rank, bool waits) {
    RankBoard board;
    board.rank = Rank{rank};
    board.host = rank < 2 ? "a" : "b";
    board.process = "running";
    board.view.written = true;
    board.view.groups.push_back({"world", rank, 4, {{0, 4, 1}}, true, waits ? 1u : 0u, waits ? 1u : 0u, 0});
    if (waits) {
        BoardOperation& operation = board.view.operations.emplace_back();
        operation.id = operation.seq = 1;
        operation.group = 0;
        operation.op = "barrier";
        operation.started_ago = operation.waited_ago = std::chrono::seconds(31);
    }
    return board;
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

inline ShownBoard shown(std::uint64_t request, int rank, bool waits, bool last) {
    return {Generation{5}, request, last, board(rank, waits)};
}

inline InquiryActions show(Inquiries& inquiries, const State& state, const NodeId& from, const ShownBoard& board,
                           TimePoint now = kStart) {
    return inquiries.shown(state, from, board, now);
}

/// All four ranks answer; rank 3 has not come.
inline InquiryActions answer(Inquiries& inquiries, const State& state, const InquiryActions& question, TimePoint now,
                             int late = 3) {
    const auto asked = to_agents<ShowBoards>(question);
    REQUIRE(asked.size() == 2);
    InquiryActions end;
    for (int rank = 0; rank < 4; ++rank) {
        end = show(inquiries, state, rank < 2 ? "a" : "b",
                   shown(asked[0].second.request, rank, rank != late, rank % 2 == 1), now);
    }
    return end;
}

}  // namespace ddprun::daemon

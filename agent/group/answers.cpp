#include "agent/group/answers.hpp"

#include <algorithm>

namespace ddprun::agent::worker_group {
namespace {

bool is_last(const State& state, LocalRank rank) { return number(rank) + 1 == state.slots; }

/// Returns whether `request` is about the latest group of this node.
bool is_current(const State& state, const protocol::RequestRecords& request) {
    return number(state.generation) >= 0 && request.generation == state.generation;
}

}  // namespace

std::vector<Action> answer(const State&, const WaitReceived& event) {
    return {PrintWait{event.reason, event.needs_nodes}};
}

std::vector<Action> answer(const State& state, const NoticeReceived& event) {
    if (event.notice.generation != state.generation) return {};
    return {PrintNotice{event.notice.text}};
}

std::vector<Action> answer(const State&, const ConnectionChanged& event) { return {PrintConnection{event.text}}; }

std::vector<Action> answer(const State&, const LogFileProblem& event) { return {PrintLogFileProblem{event.text}}; }

std::vector<Action> answer(const State& state, const StallCheckDue&) {
    if (state.phase != Phase::kRunning || is_held(state)) return {};
    return {CheckForStalls{state.running}};
}

std::vector<Action> answer(const State& state, const RecordsRequested& event) {
    if (!is_current(state, event.request)) return {};
    if (event.request.rank) {
        const LocalRank rank{number(*event.request.rank) - state.rank_base};
        if (number(rank) < 0 || number(rank) >= state.slots) return {};
        return {SendRecord{event.request, rank, true}};
    }
    protocol::RequestRecords all = event.request;
    all.operations = std::min(all.operations, protocol::kOperationsShownOfAll);
    return {SendRecord{all, LocalRank{0}, is_last(state, LocalRank{0})}};
}

std::vector<Action> answer(const State& state, const RecordSent& event) {
    if (!is_current(state, event.request) || is_last(state, event.rank)) return {};
    const LocalRank next{number(event.rank) + 1};
    return {SendRecord{event.request, next, is_last(state, next)}};
}

}  // namespace ddprun::agent::worker_group

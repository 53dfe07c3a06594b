#include "tests/sim/inspectors.hpp"

namespace ddprun::sim {

using diagnosis::InspectorId;

void Inspectors::start() {
    const InspectorId id{++started_};
    questions_left_[id] = dice_.between(1, 4);
    ask(id);
}

void Inspectors::ask(InspectorId id) {
    const auto left = questions_left_.find(id);
    if (left == questions_left_.end()) return;
    --left->second;
    protocol::Inspect request{protocol::kProtocolVersion, {}, dice_.between(1, protocol::kMaxOperationsShown)};
    if (dice_.percent(30)) request.rank = Rank{dice_.between(0, 8)};
    to_daemon_(diagnosis::InspectionRequested{id, request});
    if (dice_.percent(20)) time_.after(dice_.between(0ms, 2'000ms), [this, id] { leave(id); });
}

void Inspectors::answered(InspectorId id) {
    const auto left = questions_left_.find(id);
    if (left == questions_left_.end()) return;
    const bool again = left->second > 0;
    time_.after(dice_.between(0ms, 3'000ms), [this, id, again] { again ? ask(id) : leave(id); });
}

void Inspectors::leave(InspectorId id) {
    if (questions_left_.erase(id) > 0) to_daemon_(diagnosis::InspectorLeft{id});
}

}  // namespace ddprun::sim

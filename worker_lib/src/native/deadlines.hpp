#pragma once
// Who gives up when. Waiting ranks form chains: one waits for its neighbour, which waits for a counterpart on another
// node, which waits for a neighbour of its own that never came. The last one knows the culprit, so it must be the first
// to give up and to tell; the others wait a little longer.

#include <chrono>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

inline constexpr std::chrono::milliseconds kTelling{300};  ///< for the culprit's name to get from node to node

[[nodiscard]] inline ddprun::TimePoint extended(ddprun::TimePoint deadline, std::chrono::milliseconds by) {
    return deadline < ddprun::TimePoint::max() - by ? deadline + by : ddprun::TimePoint::max();
}

/// For ranks of the own node that have not come at all.
[[nodiscard]] inline ddprun::TimePoint meeting_deadline(const Operation& operation) { return operation.deadline; }
/// For messages from other nodes.
[[nodiscard]] inline ddprun::TimePoint network_deadline(const Operation& operation) {
    return extended(operation.deadline, kTelling);
}
/// For ranks of the own node that have come and may wait for messages.
[[nodiscard]] inline ddprun::TimePoint finishing_deadline(const Operation& operation) {
    return extended(operation.deadline, 2 * kTelling);
}

}  // namespace ddp::detail

#pragma once
// Unproven: an accepted connection whose peer has not proven that it belongs to the group (group_key.hpp). Used by the
// handshake of a group and by the acceptor of sends and receives, each on its own thread.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "common/clock.hpp"
#include "common/mac.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/group_key.hpp"

namespace ddp::detail {

struct Unproven {
    ddprun::UniqueFd socket = {};
    ddprun::UniqueFd passed = {};  ///< over a Unix socket
    Hello hello = {};
    std::optional<Hello> answer = {};  ///< sent, once the Hello was right: `proof` is being received
    ddprun::TimePoint answered_at = {};
    ddprun::Mac proof = {};
    std::size_t received = 0;
};

/// The time in which a peer sends its proof, even over a network that loses packets.
inline constexpr std::chrono::seconds kProofTime{5};

/// Returns the connection that makes room for a new one, `unproven.end()` for none: the oldest without a right Hello,
/// else the one that was answered first. A peer that has sent its proof counts the connection as made, and would be
/// lost with it. So without a free descriptor one that has been answered stays for kProofTime; later it is that of a
/// replayed Hello.
inline std::vector<Unproven>::iterator one_to_drop(std::vector<Unproven>& unproven, bool no_descriptor,
                                                   ddprun::TimePoint now) {
    const auto stranger = std::ranges::find_if(unproven, [](const Unproven& one) { return !one.answer; });
    if (stranger != unproven.end() || unproven.empty()) return stranger;
    const auto oldest = std::ranges::min_element(unproven, {}, &Unproven::answered_at);
    const bool may_be_rank = now < oldest->answered_at + kProofTime;
    return no_descriptor && may_be_rank ? unproven.end() : oldest;
}

}  // namespace ddp::detail

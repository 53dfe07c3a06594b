#pragma once
// EagerWindow: credit-based flow control of eager messages, those that are sent before the receiver has asked for them.
// It bounds the bytes that a peer may have stored at this rank, and this rank at the peer. A Peer owns it.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ddp/process_group.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"

namespace ddp::detail::p2p {

class EagerWindow {
public:
    /// Returns the bytes that a message counts against the window. An empty one needs room, too.
    [[nodiscard]] static std::size_t cost_of(std::size_t bytes) { return bytes + sizeof(Frame); }

    // Our messages, against the peer's window:
    [[nodiscard]] bool has_room(std::size_t bytes) const {
        return used_ + cost_of(bytes) <= ProcessGroup::kEagerWindow;
    }
    void add_sent(std::size_t bytes) { used_ += cost_of(bytes); }
    void add_credit(std::size_t cost) { used_ -= std::min(used_, cost); }

    // The peer's messages, against ours. Credit goes back in large portions, because each costs a frame:
    [[nodiscard]] bool owes_credit_after(std::size_t bytes) const { return owed_ + cost_of(bytes) >= kPortion; }
    void add_received(std::size_t bytes) { owed_ += cost_of(bytes); }
    [[nodiscard]] bool owes_credit() const { return owed_ >= kPortion; }
    [[nodiscard]] std::size_t take_credit() { return std::exchange(owed_, 0); }

private:
    static constexpr std::size_t kPortion = ProcessGroup::kEagerWindow / 2;
    std::size_t used_ = 0;
    std::size_t owed_ = 0;  ///< credit that the peer has not got back so far
};

}  // namespace ddp::detail::p2p

#pragma once
// Doorbell: wakes a rank that sleeps until a send or receive can go on. It is a descriptor, so that the rank can poll
// its connections beside it: a datagram socket in the abstract namespace, to which neighbours send. Its name is random,
// so that no other process can take it before us. Neighbours read it in our PostPage. A ring by a foreign process wakes
// the rank needlessly, and does no other harm. p2p::Sleeper owns it.

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/system/unique_fd.hpp"

namespace ddp::detail {

class Doorbell {
public:
    static constexpr std::size_t kNameBytes = 32;

    /// Throws Error{System}.
    Doorbell();

    /// Returns its name, of kNameBytes characters.
    [[nodiscard]] const std::string& name() const { return name_; }
    /// Returns the descriptor, which is readable after a ring.
    [[nodiscard]] int fd() const { return socket_.get(); }
    /// Takes all rings. Call it before the look for the changes that they may have signalled.
    void silence();
    /// Rings the doorbell of that name. Returns false if it is gone, or its buffer is full of rings. Any thread.
    bool ring(std::string_view name) const;
    /// Rings our own doorbell, once until silence(): unread rings count against the same socket buffer as those that we
    /// send to others, which would then not be sent. Any thread.
    void ring_own();

private:
    const std::string name_;
    ddprun::UniqueFd socket_;
    std::atomic<bool> own_rung_{false};
};

}  // namespace ddp::detail

#pragma once
// Bell: what a rank sleeps on while it waits for sends and receives, beside its connections; so it is a descriptor. A
// datagram socket in the abstract namespace, on which neighbours ring. Its name is random, so that nobody takes it
// before us, and known to those who read our memory. Whoever else rings only wakes it for nothing.

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/unique_fd.hpp"

namespace ddp::detail {

class Bell {
public:
    static constexpr std::size_t kNameBytes = 32;

    /// Throws Error{System}.
    Bell();

    /// kNameBytes characters.
    [[nodiscard]] const std::string& name() const { return name_; }
    /// Readable when somebody has rung.
    [[nodiscard]] int fd() const { return socket_.get(); }
    /// What rang before is heard; look after it at what they rang for.
    void silence();
    /// Rings that of the neighbour. If it is gone, or has been rung often enough, nothing happens. Any thread.
    bool ring(std::string_view name) const;
    /// Rings our own, once until silence(): what lies unheard in it fills the same buffer as what we send to others,
    /// who would not hear us. Any thread.
    void ring_own();

private:
    const std::string name_;
    ddprun::UniqueFd socket_;
    std::atomic<bool> own_rung_{false};
};

}  // namespace ddp::detail

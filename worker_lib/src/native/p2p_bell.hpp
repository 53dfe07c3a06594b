#pragma once
// Bell: what a rank sleeps on while it waits for sends and receives, beside its connections; so it is a descriptor. A
// datagram socket in the abstract namespace, on which neighbours ring. Whoever else rings only wakes it for nothing.

#include <string>
#include <string_view>

#include "common/unique_fd.hpp"
#include "worker_lib/src/native/member.hpp"

namespace ddp::detail {

/// That of a rank.
[[nodiscard]] std::string bell_name(const Member& member);

class Bell {
public:
    /// Throws Error{System}.
    explicit Bell(std::string_view name);

    /// Readable when somebody has rung.
    [[nodiscard]] int fd() const { return socket_.get(); }
    void silence() const;
    /// Rings that of the neighbour. If it is gone, or has been rung often enough, nothing happens. Any thread.
    void ring(std::string_view name) const;

private:
    ddprun::UniqueFd socket_;
};

}  // namespace ddp::detail

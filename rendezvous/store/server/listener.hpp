#pragma once
// Listener: the listening socket of a store server. Plain sockets, non-blocking; single owner.

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::store {

class Listener {
public:
    /// Listens on the numeric `address` and on nothing else; `::` is every address, IPv4 too. Port 0: a free
    /// one. Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<Listener> open(const std::string& address, std::uint16_t port);

    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// "10.0.0.7:41234"
    [[nodiscard]] const std::string& name() const { return name_; }

    struct Accepted {
        UniqueFd socket;  ///< empty when there is none
        sockaddr_storage peer{};
        int error = 0;  ///< why there is none, if it is not that nobody waits
    };
    [[nodiscard]] Accepted accept() const;

private:
    Listener(UniqueFd socket, const sockaddr_storage& bound);

    UniqueFd socket_;
    std::uint16_t port_;
    std::string name_;
};

/// "10.0.0.7:41234"; "an unknown address" for what is none.
[[nodiscard]] std::string to_text(const sockaddr_storage& address);

/// What an operator does about an accept that failed so.
[[nodiscard]] std::string advice_after(int accept_error);

}  // namespace ddprun::store

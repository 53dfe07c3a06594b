#pragma once
// Listener: owns the listening socket of a store server. Plain sockets, non-blocking; single owner.

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::store {

class Listener {
public:
    /// Listens on the numeric `address` and on nothing else; `::` is every address, IPv4 too. Port 0: a free
    /// one. Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<Listener> open(const std::string& address, std::uint16_t port);

    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Returns "10.0.0.7:41234".
    [[nodiscard]] const std::string& name() const { return name_; }

    /// The result of one accept().
    struct Accepted {
        UniqueFd socket;  ///< empty when no connection waits
        sockaddr_storage peer{};
        int error = 0;  ///< why accepting failed
    };
    /// Accepts one connection that waits, without blocking.
    [[nodiscard]] Accepted accept() const;

private:
    Listener(UniqueFd socket, const sockaddr_storage& bound);

    UniqueFd socket_;
    std::uint16_t port_;
    std::string name_;
};

/// Sets the options of a client's connection.
void prepare_connection(int socket);

/// Returns "10.0.0.7:41234"; "an unknown address" if `address` is not one.
[[nodiscard]] std::string to_text(const sockaddr_storage& address);

/// Returns advice for the operator about an accept that failed with this error.
[[nodiscard]] std::string advice_after(int accept_error);

}  // namespace ddprun::store

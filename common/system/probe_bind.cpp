#include "common/system/probe_bind.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "common/system/resolve.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun {

int probe_bind(const Endpoint& endpoint) {
    const auto addresses = numeric_address(endpoint);
    if (!addresses) return EADDRNOTAVAIL;
    const SocketAddress& wanted = addresses->front();
    const UniqueFd socket(::socket(wanted.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) return errno;
    const int on = 1;
    // The daemon sets it too: a listener is an obstacle, a connection of an earlier job in TIME_WAIT is not.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wanted.bytes), wanted.size) == 0 ? 0 : errno;
}

}  // namespace ddprun

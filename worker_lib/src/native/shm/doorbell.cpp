#include "worker_lib/src/native/p2p_bell.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/ids.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

std::pair<sockaddr_un, socklen_t> address_of(std::string_view name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);  // the zero byte before it makes it abstract
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

/// In one go. A stranger may ring without end.
constexpr int kMostRings = 64;

}  // namespace

Bell::Bell() : name_(ddprun::random_id()), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto [address, length] = address_of(name_);
    if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        throw_errno("cannot open a socket for sends and receives", errno);
    }
}

void Bell::silence() {
    std::array<char, 8> ring{};
    for (int i = 0; i < kMostRings && ::recv(socket_.get(), ring.data(), ring.size(), 0) >= 0; ++i) {
    }
    // Only now: a ring between the two would be taken out, and would keep all later ones from being sent. An exchange,
    // so that whoever looks around next sees what a ringer that found the flag set has written before.
    own_rung_.exchange(false);
}

void Bell::ring_own() {
    if (!own_rung_.exchange(true) && !ring(name_)) own_rung_ = false;
}

bool Bell::ring(std::string_view name) const {
    const auto [address, length] = address_of(name);
    return ::sendto(socket_.get(), "", 1, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length) >= 0;
}

}  // namespace ddp::detail

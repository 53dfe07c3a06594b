#include "worker_lib/src/native/shm/doorbell.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/ids.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

std::pair<sockaddr_un, socklen_t> address_of(std::string_view name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);  // the zero byte before it makes it abstract
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

/// Maximum number of rings that silence() takes, because a foreign process may ring without end.
constexpr int kMaxRings = 64;

}  // namespace

Doorbell::Doorbell()
    : name_(ddprun::random_id()), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto [address, length] = address_of(name_);
    if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        throw_errno("cannot open a socket for sends and receives", errno);
    }
}

void Doorbell::silence() {
    std::array<char, 8> ring{};
    for (int i = 0; i < kMaxRings && ::recv(socket_.get(), ring.data(), ring.size(), 0) >= 0; ++i) {
    }
    // The flag is cleared last: else a ring of ours in between would be taken, and its flag would suppress all later
    // ones. An exchange, so that the thread that looks for changes next sees the stores of a ringer that found it set.
    own_rung_.exchange(false);
}

void Doorbell::ring_own() {
    if (!own_rung_.exchange(true) && !ring(name_)) own_rung_ = false;
}

bool Doorbell::ring(std::string_view name) const {
    const auto [address, length] = address_of(name);
    return ::sendto(socket_.get(), "", 1, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length) >= 0;
}

}  // namespace ddp::detail

#pragma once
// Connects a socket for the store client, sends and receives, each with a deadline. Plain POSIX; any thread.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::store {

/// Tries each address of the host once, IPv6 and IPv4, in the resolver's order. The socket is non-blocking. Errors:
/// kNotFound (unknown host, or no name server answered in time), kTimeout, kUnreachable (refused, no route), kSystem.
[[nodiscard]] Result<UniqueFd> connect_socket(const Endpoint& endpoint, TimePoint deadline);

/// Sends all of `bytes`. Errors: kTimeout, kClosed (also a reset), kSystem. After an error it is unknown how much was
/// sent.
[[nodiscard]] Result<void> send_all(int socket, std::string_view bytes, TimePoint deadline);

/// Fills `into`. Errors: kTimeout (nothing is lost only when `into` is one byte), kClosed (also a reset), kSystem.
[[nodiscard]] Result<void> receive_all(int socket, std::span<char> into, TimePoint deadline);

/// Waits until bytes have arrived and receives as many as fit into `into`. Returns their number. Errors: kTimeout (no
/// byte is lost), kClosed (also a reset), kSystem.
[[nodiscard]] Result<std::size_t> receive_some(int socket, std::span<char> into, TimePoint deadline);

/// Sends all of `bytes` and appends the bytes that arrive meanwhile to `received`: the other side may answer before it
/// has read all, and read no more until its answers are taken. `timeout` is that of each further piece. Errors: as
/// send_all and receive_all.
[[nodiscard]] Result<void> send_and_receive(int socket, std::string_view bytes, std::string& received,
                                            Duration timeout);

/// Returns the numeric address of this end of the connection; empty if the system reports none.
[[nodiscard]] std::string local_address_of(int socket);

}  // namespace ddprun::store

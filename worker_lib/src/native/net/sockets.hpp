#pragma once
// The few socket calls of the native backend: listening, connecting and moving bytes with a deadline, passing a
// descriptor. All sockets are non-blocking and closed on exec.

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddp::detail {

/// A listener on the numeric `address`; `port` 0 is replaced by the kernel's choice.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> listen_tcp(const std::string& address, int& port);
/// A listener in the abstract namespace: it has no file and ends with its socket.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> listen_unix(const std::string& name);

/// The next connection that waits at `listener`; none: there is no other. Strangers may come and stay silent: when
/// `waiting` of them are `most`, or no descriptor is left, `drop_oldest` closes one. Throws Error{System} when there is
/// neither a descriptor nor one to be closed.
[[nodiscard]] ddprun::UniqueFd accept_stranger(int listener, std::size_t waiting, std::size_t most,
                                               const std::function<void()>& drop_oldest);

[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_tcp(const std::string& address, int port,
                                                           ddprun::TimePoint deadline);
/// The same without waiting: the socket becomes writable when it is decided whether there is a connection.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> begin_connect_tcp(const std::string& address, int port);
[[nodiscard]] ddprun::Result<void> finish_connect(int socket, const std::string& what);
/// Of a listener on this machine. One whose queue is full is tried again until the deadline.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_unix(const std::string& name, ddprun::TimePoint deadline);

/// For connections between nodes: small messages leave at once, and a host that vanished is noticed within half a
/// minute.
void prepare_tcp(int socket);

/// False if something that we sent again more than once waits to be acknowledged: the peer's host is down, or cut off.
/// A peer that is only stopped has a kernel that acknowledges; a packet that got lost is no reason yet.
[[nodiscard]] bool acknowledges(int socket);

/// What has been sent is there, at the latest by `deadline`; what comes meanwhile is thrown away. For sockets that are
/// shut for sending and about to be closed: the kernel drops what is still to go when it closes one with unread input.
void let_go(std::vector<int> sockets, ddprun::TimePoint deadline);

/// Milliseconds for poll(2): rounded up, at least 0.
[[nodiscard]] int poll_timeout(ddprun::TimePoint deadline);
/// Waits for `events` (or an error) on `fd`; false when the deadline passes first.
[[nodiscard]] bool wait_for(int fd, short events, ddprun::TimePoint deadline);

/// One recvmsg. 0: end of the stream; -1: errno says why, EMFILE also when there was no room for a descriptor that came
/// along. Else that goes to `passed`.
[[nodiscard]] ssize_t receive_some(int socket, std::span<std::byte> bytes, ddprun::UniqueFd& passed);

[[nodiscard]] ddprun::Result<void> receive_all(int socket, std::span<std::byte> bytes, ddprun::UniqueFd& passed,
                                               ddprun::TimePoint deadline);
/// `descriptor` (if not -1) travels with the first byte.
[[nodiscard]] ddprun::Result<void> send_all(int socket, std::span<const std::byte> bytes, int descriptor,
                                            ddprun::TimePoint deadline);

}  // namespace ddp::detail

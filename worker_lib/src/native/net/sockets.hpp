#pragma once
// Socket calls of the native backend: listening, connecting and moving bytes with a deadline, passing a descriptor. All
// sockets are non-blocking and closed on exec. Any thread.

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddp::detail {

/// Returns a listener on the numeric `address`. Replaces a `port` of 0 by the kernel's choice.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> listen_tcp(const std::string& address, int& port);
/// Returns a listener in the abstract namespace, which has no file and ends with its socket.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> listen_unix(const std::string& name);

/// Accepts the next connection at `listener`; returns none if there is no other. Any process may connect and never send
/// its greeting: if `waiting` of them reach `max_waiting`, or no descriptor is left, calls `drop_one`, which closes
/// one and returns true. If no descriptor is left it may return false: the new connection waits in the queue. Throws
/// Error{System} if there is neither a descriptor nor a connection to close.
[[nodiscard]] ddprun::UniqueFd accept_unidentified(int listener, std::size_t waiting, std::size_t max_waiting,
                                                   const std::function<bool(bool no_descriptor)>& drop_one);

/// Connects to a numeric address before `deadline`.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_tcp(const std::string& address, int port,
                                                           ddprun::TimePoint deadline);
/// Begins to connect without waiting. The socket becomes writable when finish_connect() can return the result.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> begin_connect_tcp(const std::string& address, int port);
/// Returns whether the connection was made; `what` begins the error's text.
[[nodiscard]] ddprun::Result<void> finish_connect(int socket, const std::string& what);
/// Connects to a listener on this machine. If its queue is full, tries again until the deadline.
[[nodiscard]] ddprun::Result<ddprun::UniqueFd> connect_unix(const std::string& name, ddprun::TimePoint deadline);

/// Returns whether the error shows that a host does not answer, or that there is no route to it: it is down, or the
/// network is cut. The end of a process on a reachable host is another error.
[[nodiscard]] bool is_unreachable(int errno_value);
[[nodiscard]] bool is_unreachable(const ddprun::Error& error);

/// Sets the options of connections between nodes: small messages leave at once (TCP_NODELAY), and a vanished host is
/// noticed within half a minute, and after kUnreachableTolerated at the earliest (keep-alive).
void prepare_tcp(int socket);

/// The host at the other end of a connection over TCP, as the kernel sees it.
struct PeerHost {
    std::chrono::milliseconds heard_ago{0};  ///< its newest data or acknowledgement, a repeated one or not
    /// Data that was retransmitted four times, for 3 s at least, is unacknowledged, or two probes are.
    bool unanswered = false;
};
/// Returns the state of the host at the other end. Without TCP, it is that of a host that answers.
[[nodiscard]] PeerHost peer_host(int socket);
/// Returns whether the host has left data unanswered, and nothing at all was heard of it for kUnreachableNoticed. A
/// host whose process does not read still repeats acknowledgements.
[[nodiscard]] bool is_silent(const PeerHost& host);

/// Returns false if data that was retransmitted at least twice is unacknowledged, or two probes of a full receiver are:
/// the peer's host is down, or cut off. The kernel of a stopped process still acknowledges both, and one lost packet is
/// no evidence. Probes follow each other in intervals of up to two minutes: of a receiver that was full for long, this
/// shows late that it is cut off.
[[nodiscard]] bool acknowledges(int socket);
/// Returns whether the peer's host has acknowledged everything sent, so that the socket takes a short message whole.
[[nodiscard]] bool send_queue_is_empty(int socket);

/// Waits until everything sent is acknowledged, at most until `deadline`, and discards input. For sockets that are shut
/// for sending and about to be closed: closing one with unread input would drop unsent data.
void drain(std::vector<int> sockets, ddprun::TimePoint deadline);

/// Returns the milliseconds until `deadline` for poll(2), rounded up, at least 0.
[[nodiscard]] int poll_timeout(ddprun::TimePoint deadline);
/// Waits for `events` or an error on `fd`. Returns false if the deadline passes first.
[[nodiscard]] bool wait_for(int fd, short events, ddprun::TimePoint deadline);

/// Calls recvmsg once. Returns 0 at the end of the stream, and -1 with errno, which is EMFILE also if there was no room
/// for a descriptor in the message. A descriptor goes to `passed`.
[[nodiscard]] ssize_t receive_some(int socket, std::span<std::byte> bytes, ddprun::UniqueFd& passed);

/// Fills `bytes` before `deadline`.
[[nodiscard]] ddprun::Result<void> receive_all(int socket, std::span<std::byte> bytes, ddprun::UniqueFd& passed,
                                               ddprun::TimePoint deadline);
/// Sends `bytes` before `deadline`. `descriptor`, if not -1, travels with the first byte.
[[nodiscard]] ddprun::Result<void> send_all(int socket, std::span<const std::byte> bytes, int descriptor,
                                            ddprun::TimePoint deadline);

}  // namespace ddp::detail

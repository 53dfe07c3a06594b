#pragma once
// Makes channels over TCP, framed as WebSocket messages (RFC 6455) after an HTTP upgrade of kAgentPath. Beast stays in
// the .cpp. Both functions take their arguments by value and may be spawned; results live on the executor's one thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <string_view>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "rendezvous/transport/channel.hpp"
#include "rendezvous/transport/tls.hpp"

namespace ddprun::transport {

inline constexpr std::string_view kAgentPath = "/ddprun/v1/agent";
/// Both sides send this header. A web page cannot send it, so no page in a browser can talk to a daemon on the same
/// machine.
inline constexpr std::string_view kChannelHeader = "Ddprun-Channel";
inline constexpr std::string_view kChannelVersion = "2";
/// In the answer to a plain agent where TLS is required: "tls".
inline constexpr std::string_view kSecurityHeader = "Ddprun-Security";
/// Limit of an HTTP request: an agent sends about 250 bytes.
inline constexpr std::size_t kMaxHandshakeBytes = 1u << 10;

/// Connects to `endpoint` and upgrades, before `deadline`, with TLS if `security` requires it.
/// Errors: a system error (connection_refused, …) when there is no connection; kTimeout; kClosed when the peer ends it
/// during the handshake; kRefused when a server that is not a ddprund answers; kMismatch when a ddprund of another
/// version does; kInUse when the server is a process of another user of this host; kUntrusted when its key is another
/// one, or one of the two ends uses no TLS: the message follows "the ddprund at …". The messages do not name the
/// endpoint.
[[nodiscard]] boost::asio::awaitable<Result<std::shared_ptr<Channel>>> connect_websocket(
    boost::asio::ip::tcp::endpoint endpoint, TimePoint deadline, Security security = {});

/// Returns the further lines of the answer to a plain HTTP request, about the job at that time; empty: none.
using JobLines = std::function<std::string()>;

/// Answers the upgrade on an accepted connection, before `deadline`. The first byte decides whether TLS comes before
/// it; `security` decides whether it must. A plain HTTP request is answered in any case. Body of the answer to a plain
/// HTTP request: kAboutDaemon (common/daemon_answer.hpp), then `job_lines` if there is one. Errors: kTimeout, kClosed,
/// kMalformed (not HTTP), kRefused (HTTP, but not an agent; it has been answered), kUntrusted (another key, or no TLS).
/// The socket is closed then.
[[nodiscard]] boost::asio::awaitable<Result<std::shared_ptr<Channel>>> accept_websocket(
    boost::asio::ip::tcp::socket socket, TimePoint deadline, JobLines job_lines = {}, Security security = {});

}  // namespace ddprun::transport

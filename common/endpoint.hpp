#pragma once
// Endpoint: a host (name or numeric address) and a port, as users write it. No name is resolved here.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/error.hpp"

namespace ddprun {

struct Endpoint {
    std::string host;
    std::uint16_t port = 0;
    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Parses host, host:port, IPv4[:port], [IPv6], [IPv6]:port and a bare IPv6 address (which then has no port).
/// A missing port becomes `default_port`. Errors: Errc::kUsage with the reason and the accepted forms; the caller
/// adds the text and its origin.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port);

/// Returns "host:port", with brackets around an IPv6 address.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);

/// Returns whether a connection to the endpoint may leave this host: it names neither a loopback address nor localhost.
[[nodiscard]] bool may_leave_host(const Endpoint& endpoint);

}  // namespace ddprun

#include "common/endpoint.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "common/text/number.hpp"

namespace ddprun {
namespace {

Error bad_endpoint(std::string_view why) {
    return {Errc::kUsage, fmt::format("{}. Write host, host:port, [IPv6] or [IPv6]:port", why)};
}

bool is_ipv6(std::string_view text) {
    const std::string address(text.substr(0, text.find('%')));  // without the name of the interface
    in6_addr ignored{};
    return ::inet_pton(AF_INET6, address.c_str(), &ignored) == 1;
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
    std::string_view host = text;
    std::optional<std::string_view> port_text;

    if (text.starts_with('[')) {
        const auto close = text.find(']');
        if (close == std::string_view::npos) return bad_endpoint("no closing bracket");
        host = text.substr(1, close - 1);
        const std::string_view rest = text.substr(close + 1);
        if (!rest.empty() && rest.front() != ':') return bad_endpoint("only :port may follow the bracket");
        if (!rest.empty()) port_text = rest.substr(1);
    } else if (std::ranges::count(text, ':') == 1) {
        const auto colon = text.find(':');
        host = text.substr(0, colon);
        port_text = text.substr(colon + 1);
    } else if (text.find(':') != text.npos && !is_ipv6(text)) {
        return bad_endpoint("it has several colons and is not an IPv6 address");
    }  // no colon: a host alone; several: a bare IPv6 address, whose last group is not a port

    if (host.empty()) return bad_endpoint("the host is empty");
    if (!port_text) return Endpoint{std::string(host), default_port};
    const auto port = parse_number<std::uint16_t>(*port_text);
    if (!port) return bad_endpoint("the port is not a number from 0 to 65535");
    return Endpoint{std::string(host), *port};
}

std::string to_string(const Endpoint& endpoint) {
    const bool ipv6 = endpoint.host.find(':') != std::string::npos;
    return ipv6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool may_leave_host(const Endpoint& endpoint) {
    return endpoint.host != "localhost" && endpoint.host != "::1" && !endpoint.host.starts_with("127.");
}

}  // namespace ddprun

#include "worker_lib/src/native/net/interfaces.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "common/system/interface.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

/// Returns whether it is a link-local address of IPv6, which means nothing without its interface.
bool is_link_local(const sockaddr* address) {
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_v6(std::string_view address) { return address.find(':') != std::string_view::npos; }

std::vector<std::string_view> split(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const auto end = text.find(',');
        if (end != 0) words.push_back(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return words;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) throw_errno("cannot list the network interfaces", errno);
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, ::freeifaddrs);
    std::vector<InterfaceAddress> addresses;
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || is_link_local(one->ifa_addr)) continue;
        std::string address = ddprun::numeric(one->ifa_addr);
        if (!address.empty()) addresses.push_back({one->ifa_name, std::move(address)});
    }
    return addresses;
}

std::string choose_address(const std::optional<std::string>& wanted, const std::string& usual,
                           const std::vector<InterfaceAddress>& addresses) {
    if (!wanted || wanted->empty()) return usual;
    const bool exact = wanted->front() == '=';
    for (const std::string_view name : split(std::string_view(*wanted).substr(exact ? 1 : 0))) {
        const InterfaceAddress* found = nullptr;
        for (const InterfaceAddress& one : addresses) {
            if (exact ? one.interface != name : !one.interface.starts_with(name)) continue;
            if (is_v6(one.address) == is_v6(usual)) return one.address;
            if (found == nullptr) found = &one;
        }
        if (found != nullptr) return found->address;
    }
    std::string there;
    for (const InterfaceAddress& one : addresses)
        there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", one.interface, one.address);
    throw Error(
        ErrorCode::Environment,
        fmt::format("DDPRUN_SOCKET_IFNAME is '{}', but no interface that is up has {}. Interfaces that are up: {}",
                    *wanted, exact ? "this name" : "a name that begins with it", there.empty() ? "none" : there));
}

}  // namespace ddp::detail

#include "common/system/interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>

#include "common/system/resolve.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun {

std::string numeric(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (address->sa_family == AF_INET) bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    if (address->sa_family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (bytes == nullptr || ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) return {};
    return text.data();
}

std::string source_address_to(const std::string& to) {
    constexpr std::uint16_t kAnyPort = 9;  // no packet is sent to it
    const Result<Addresses> target = numeric_address({to, kAnyPort});
    if (!target || target->empty()) return {};
    const auto* const peer = reinterpret_cast<const sockaddr*>(&target->front().bytes);
    const UniqueFd socket(::socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::connect(socket.get(), peer, target->front().size) != 0) return {};
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return {};
    return numeric(reinterpret_cast<const sockaddr*>(&own));
}

std::string interface_with(const std::string& address) {
    ifaddrs* list = nullptr;
    if (address.empty() || ::getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
        if (numeric(entry->ifa_addr) != address) continue;
        const std::string name = entry->ifa_name;
        return name.substr(0, name.find(':'));  // without the label of an alias
    }
    return {};
}

}  // namespace ddprun

#include "launcher/host/this_host.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "common/clock.hpp"
#include "common/system/interface.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddprun::launcher {
namespace {

bool is_link_local(const std::string& address) {
    return address.starts_with("fe80:") || address.starts_with("169.254.");
}

bool is_numeric(const std::string& host) {
    std::array<std::byte, sizeof(in6_addr)> scratch{};
    return ::inet_pton(AF_INET, host.c_str(), scratch.data()) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), scratch.data()) == 1;
}

/// Returns whether `host` is one of the names that RFC 6761 and Debian's /etc/hosts reserve for the loopback interface.
bool means_loopback(const std::string& host) {
    const std::string name = lower_case(host);
    return name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain" ||
           name == "ip6-localhost" || name == "ip6-loopback";
}

/// Returns whether `host` names the machine whose name is `own`: it is equal, or equal to the first label of `own`.
/// With own "n1.cluster", "n1.cluster" and "n1" do, "n1.other" does not; with own "n1", "n1.cluster" does not. Ignores
/// case.
bool is_own_name(const std::string& host, const std::string& own) {
    const std::string full = lower_case(own);
    const std::string asked = lower_case(host);
    return !asked.empty() && (asked == full || asked == full.substr(0, full.find('.')));
}

}  // namespace

std::string user_name(uid_t uid) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 4096> texts{};
    ::getpwuid_r(uid, &entry, texts.data(), texts.size(), &found);
    return found != nullptr ? found->pw_name : std::to_string(uid);
}

std::string name_for_local_processes(const std::string& named, const std::vector<std::string>& resolved,
                                     const std::string& dialed) {
    return std::ranges::find(resolved, dialed) != resolved.end() ? named : dialed;
}

bool is_wildcard(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

std::string address_to_dial(const std::string& bound, const ThisHost& self) {
    if (!is_wildcard(bound)) return bound;
    const bool all_kinds = bound == "::";  // which takes IPv4 as well
    const auto is_ipv4 = [](const std::string& address) { return address.find(':') == std::string::npos; };
    for (const std::string& address : self.addresses) {
        if (all_kinds || is_ipv4(address)) return address;
    }
    return all_kinds ? "::1" : "127.0.0.1";
}

std::string host_name() {
    std::array<char, 256> name{};  // HOST_NAME_MAX is 64
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

ThisHost this_host() {
    ThisHost self;
    self.name = host_name();

    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return self;  // then only loopback addresses are recognised
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
        std::string address = numeric(entry->ifa_addr);
        if (!address.empty() && !is_loopback(address) && !is_link_local(address))
            self.addresses.push_back(std::move(address));
    }
    std::ranges::stable_partition(self.addresses,
                                  [](const std::string& a) { return a.find(':') == std::string::npos; });
    return self;
}

Result<std::vector<std::string>> addresses_of(const std::string& host, std::chrono::seconds timeout, LookUp look_up) {
    const TimePoint deadline = Clock::now() + timeout;
    const auto found = resolve({host, 0}, deadline, std::move(look_up));
    std::vector<std::string> addresses;
    if (found) {
        for (const SocketAddress& entry : *found) {
            std::string address = numeric(reinterpret_cast<const sockaddr*>(&entry.bytes));
            if (!address.empty()) addresses.push_back(std::move(address));
        }
    } else if (Clock::now() >= deadline) {
        return Error{
            Errc::kTimeout,
            fmt::format(
                "cannot find out by its addresses whether '{}' is this machine: no name server has answered in {}",
                host, seconds_text(timeout))};
    }
    return addresses;
}

std::optional<std::string> address_here(const std::string& host, const std::vector<std::string>& resolved,
                                        const ThisHost& self, bool alone) {
    const auto is_ours = [&](const std::string& address) {
        return std::ranges::find(self.addresses, address) != self.addresses.end();
    };
    const auto loopback = std::ranges::find_if(resolved, is_loopback);
    if (is_numeric(host)) {
        if (resolved.empty()) return std::nullopt;
        const std::string& address = resolved.front();  // in its usual spelling
        const bool here = is_loopback(address) || is_wildcard(address) || is_ours(address);
        return here ? std::optional(address) : std::nullopt;
    }
    if (means_loopback(host)) {
        const bool ipv4 =
            resolved.empty() || std::ranges::any_of(resolved, [](const auto& a) { return a.starts_with("127."); });
        return ipv4 || loopback == resolved.end() ? "127.0.0.1" : *loopback;
    }
    if (const auto ours = std::ranges::find_if(resolved, is_ours); ours != resolved.end()) return *ours;
    if (loopback == resolved.end() && !is_own_name(host, self.name)) return std::nullopt;
    if (loopback != resolved.end() && alone) return *loopback;
    return self.addresses.empty() ? "127.0.0.1" : self.addresses.front();
}

}  // namespace ddprun::launcher

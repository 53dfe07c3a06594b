#include "launcher/scheduler/ssh_hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "common/job_limits.hpp"
#include "common/text/number.hpp"
#include "launcher/scheduler/host_list.hpp"

namespace ddprun::launcher {
namespace {

Error hosts_error(std::string text) { return {Errc::kUsage, std::move(text)}; }

/// Whether ssh and the remote shell take `name` for nothing but a host or a user.
bool is_plain(std::string_view name) {
    return !name.empty() && name.front() != '-' && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
    });
}

/// Parses "user@n1:2".
Result<SshHost> parse_ssh_host(std::string_view text) {
    const auto colon = text.find(':');
    SshHost host;
    host.login = text.substr(0, colon);
    const auto at = host.login.find('@');
    host.name = at == std::string::npos ? host.login : host.login.substr(at + 1);
    if (!is_plain(host.name) || (at != std::string::npos && !is_plain(host.login.substr(0, at))))
        return hosts_error(fmt::format("'{}' is not a host. Write HOST, HOST:WORKERS or USER@HOST.", text));
    if (colon == std::string_view::npos) return host;
    host.slots = parse_number<int>(text.substr(colon + 1));
    if (host.slots && *host.slots >= 1 && *host.slots <= kMaxSlots) return host;
    return hosts_error(fmt::format("'{}': the workers of a host are a number from 1 to {}.", text, kMaxSlots));
}

/// Returns the hosts of a file as "n1:2".
Result<std::vector<std::string>> lines_of_file(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> entries;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string host, slots;
        if (!(words >> host)) continue;
        constexpr std::string_view kSlots = "slots=";
        if (words >> slots && slots.starts_with(kSlots)) host += ":" + slots.substr(kSlots.size());
        if (std::ranges::count(entries, host) == 0) entries.push_back(host);
        if (entries.size() > static_cast<std::size_t>(kMaxNodes))
            return hosts_error(fmt::format("the file has more than {} hosts.", kMaxNodes));
    }
    if (!entries.empty()) return entries;
    return hosts_error("the file names no host, or cannot be read. Write one host per line.");
}

}  // namespace

Result<std::vector<SshHost>> parse_ssh_hosts(std::string_view text) {
    const bool is_file = text.find('/') != std::string_view::npos;
    const auto entries = is_file ? lines_of_file(std::string(text)) : expand_host_list(text);
    if (!entries) return hosts_error(entries.error().message);
    std::vector<SshHost> hosts;
    for (const std::string& entry : *entries) {
        auto host = parse_ssh_host(entry);
        if (!host) return host.error();
        if (std::ranges::count(hosts, host->name, &SshHost::name) > 0)
            return hosts_error(fmt::format("{0} is named twice. For two workers there write {0}:2.", host->name));
        hosts.push_back(std::move(*host));
    }
    if (hosts.size() > 1 && std::ranges::count(hosts, "localhost", &SshHost::name) > 0)
        return hosts_error("localhost is another host on each node. Write the name by which the others reach it.");
    return hosts;
}

std::string list_of_hosts(const std::vector<SshHost>& hosts) {
    std::string list;
    for (const SshHost& host : hosts) {
        list += (list.empty() ? "" : ",") + host.login;
        if (host.slots) list += fmt::format(":{}", *host.slots);
    }
    return list;
}

Result<SshNode> parse_ssh_node(std::string_view text) {
    const auto at = text.find('@');
    const auto behind = at == std::string_view::npos ? at : text.find('@', at + 1);
    const auto index = parse_number<int>(text.substr(0, at));
    if (!index || *index < 0 || behind == std::string_view::npos) return hosts_error("not INDEX@JOB@LIST.");
    auto hosts = parse_ssh_hosts(text.substr(behind + 1));
    if (!hosts) return hosts.error();
    return SshNode{*index, std::string(text.substr(at + 1, behind - at - 1)), std::move(*hosts)};
}

Result<Allocation> allocation_of_hosts(const std::vector<SshHost>& hosts, const std::optional<SshNode>& node) {
    Allocation allocation;
    for (const SshHost& host : hosts) allocation.hosts.push_back(host.name);
    allocation.nodes = static_cast<int>(hosts.size());
    allocation.job_nodes = allocation.nodes;
    allocation.title = "the job on --hosts";
    allocation.start_on_all = "ddprun --hosts …";
    if (!node) return allocation;
    if (node->index >= allocation.nodes) return hosts_error("--as-ssh-node: not the index of one of --hosts.");
    allocation.name = fmt::format("hosts-{}", node->job);
    allocation.node = node->index;
    return allocation;
}

}  // namespace ddprun::launcher

#include "ctl/find_jobs.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/system/files.hpp"
#include "common/system/process_state.hpp"
#include "common/system/resolve.hpp"
#include "common/system/tcp_table.hpp"
#include "common/text/cut.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"

namespace ddprun::ctl {
namespace {

constexpr std::size_t kMaxCommand = 100;
constexpr std::chrono::seconds kResolveTimeout{1};  // of all endpoints that are names

Job job_of_process(const std::filesystem::path& entry) { return job_of(content_of(entry / "environ")); }

/// Returns whether process `name` (a folder of /proc), whose environment names `job`, is a worker: it leads a process
/// group, and the environment of its parent does not name that job, as it does for a child of a worker.
bool is_worker(const std::string& name, const Job& job) {
    const pid_t pid = static_cast<pid_t>(std::stol(name));
    if (::getpgid(pid) != pid) return false;
    return job_of_process(fmt::format("/proc/{}", parent_of(pid))) != job;
}

/// Returns the sockets that a process has open, by their inodes.
std::set<std::string> sockets_of(pid_t pid) {
    std::set<std::string> inodes;
    std::error_code ignored;  // of a process of another user, or that has just ended
    const std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid), ignored);
    for (const auto& file : files) {
        const std::string link = std::filesystem::read_symlink(file, ignored).string();
        if (link.starts_with("socket:[")) inodes.insert(link.substr(8, link.size() - 9));
    }
    return inodes;
}

/// Returns the jobs to whose daemons these processes of ddprun are connected. An agent has no other TCP connection.
std::vector<Job> jobs_of_agents(const std::vector<pid_t>& agents) {
    std::vector<Job> jobs;
    if (agents.empty()) return jobs;
    const std::vector<TcpTableSocket> table = tcp_table();
    for (const pid_t agent : agents) {
        const std::set<std::string> inodes = sockets_of(agent);
        const auto connection = std::ranges::find_if(table, [&](const TcpTableSocket& socket) {
            return socket.state == TCP_ESTABLISHED && inodes.contains(socket.inode);
        });
        if (connection == table.end()) continue;
        Job job;
        job.endpoint = to_string(Endpoint{numeric_host(connection->remote), connection->remote.port});
        job.command = command_of(content_of(fmt::format("/proc/{}/cmdline", agent)));
        if (!std::ranges::count(jobs, job.endpoint, &Job::endpoint)) jobs.push_back(std::move(job));
    }
    return jobs;
}

/// Returns the addresses of a job's endpoint, which may be a name, as jobs_of_agents() writes them.
std::set<std::string> addresses_of(const std::string& endpoint, TimePoint deadline) {
    std::set<std::string> addresses{endpoint};
    const Result<Endpoint> named = parse_endpoint(endpoint, 0);
    const Result<Addresses> found = named ? resolve(*named, deadline) : named.error();
    if (!found) return addresses;
    for (const SocketAddress& address : *found) {
        std::array<char, NI_MAXHOST> host{};
        const auto* const bytes = reinterpret_cast<const sockaddr*>(&address.bytes);
        if (::getnameinfo(bytes, address.size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) == 0)
            addresses.insert(to_string(Endpoint{host.data(), named->port}));
    }
    return addresses;
}

}  // namespace

Job job_of(const std::string& environment) {
    Job job;
    std::istringstream entries(environment);
    for (std::string entry; std::getline(entries, entry, '\0');) {
        const auto value_of = [&](std::string_view name) { return entry.substr(name.size()); };
        if (entry.starts_with("DDPRUN_ENDPOINT=")) job.endpoint = value_of("DDPRUN_ENDPOINT=");
        if (entry.starts_with("DDPRUN_RUN_ID=")) job.run_id = value_of("DDPRUN_RUN_ID=");
    }
    return job;
}

std::string command_of(const std::string& arguments) {
    std::istringstream words(arguments);
    std::string command;
    for (std::string word; std::getline(words, word, '\0');) {
        if (command.empty()) word = std::filesystem::path(word).filename().string();
        command += (command.empty() ? "" : " ") + word;
    }
    command = escape_controls(command);
    if (command.size() <= kMaxCommand) return command;
    return command.substr(0, kept_bytes(command, kMaxCommand - 1)) + " …";
}

std::string describe(const Job& job) {
    if (job.run_id.empty()) return job.command + ", without workers here";
    std::string text = fmt::format("'{}'", escape_controls(job.run_id));
    if (!job.command.empty()) text += ": " + job.command;
    if (job.workers > 0) text += fmt::format(", {} on this machine", counted(job.workers, "worker"));
    return text;
}

std::vector<Job> find_jobs() {
    std::map<std::pair<std::string, std::string>, Job> jobs;  // by id and endpoint
    std::set<pid_t> parents;                                  // of workers
    std::vector<pid_t> agents;
    std::error_code ignored;  // processes may end meanwhile
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (content_of(entry.path() / "comm") == "ddprun\n") agents.push_back(static_cast<pid_t>(std::stol(name)));
        const Job found = job_of_process(entry.path());
        if (found.endpoint.empty()) continue;
        Job& job = jobs.try_emplace({found.run_id, found.endpoint}, found).first->second;
        if (!is_worker(name, found)) continue;
        ++job.workers;
        parents.insert(parent_of(static_cast<pid_t>(std::stol(name))));
        if (job.command.empty()) job.command = command_of(content_of(entry.path() / "cmdline"));
    }
    std::vector<Job> list;
    for (auto& [key, job] : jobs) list.push_back(std::move(job));
    std::erase_if(agents, [&](pid_t agent) { return parents.contains(agent); });
    std::vector<Job> without_workers = jobs_of_agents(agents);
    if (without_workers.empty()) return list;
    std::set<std::string> known;
    const TimePoint deadline = Clock::now() + kResolveTimeout;
    for (const Job& job : list) known.merge(addresses_of(job.endpoint, deadline));
    std::erase_if(without_workers, [&](const Job& job) { return known.contains(job.endpoint); });
    std::ranges::move(without_workers, std::back_inserter(list));
    return list;
}

}  // namespace ddprun::ctl

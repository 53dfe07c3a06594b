#include "tests/bench/store/run.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace ddprun::bench {
namespace {

/// The servers of this run: each started once, and again where a workload wants a fresh one.
class Cast {
public:
    explicit Cast(const RunOptions& options) : servers_(options.servers) {
        for (const std::string& name : servers_.names()) {
            if (std::ranges::find(options.without, name) != options.without.end()) continue;
            std::string why;
            std::unique_ptr<Server> server = servers_.start(name, why);
            lines.push_back(server ? fmt::format("{:<10} {}", name, describe(*server))
                                   : fmt::format("{:<10} absent: {}", name, why));
            if (!server) continue;
            names_.push_back(name);
            standing_[name] = std::move(server);
        }
    }

    std::vector<std::string> names_for(const Workload& workload) const {
        std::vector<std::string> names = names_;
        std::erase_if(names, [&](const std::string& name) {
            if (name == "gate") return !workload.gate_floor;
            if (name == "echo") return workload.plain_floor;
            return name.starts_with("plain") && !workload.plain_floor;
        });
        return names;
    }

    std::vector<double> measure(const Workload& workload, const std::string& name) {
        if (!workload.fresh_server) return workload.measure(revived(name));
        std::string why;
        const std::unique_ptr<Server> fresh = servers_.start(name, why);
        if (!fresh) throw std::runtime_error(why);
        return workload.measure(*fresh);
    }

    std::vector<std::string> lines;

private:
    static std::string describe(const Server& server) {
        if (server.name == "echo") return "bare level-triggered epoll echo server, one thread";
        if (server.name == "gate") return "the same loop, which answers those who wait when the last one has come";
        if (server.name == "plain") return "bare sender and receiver of large values, from and into 64 MiB of memory";
        if (server.name == "plain-hot") return "the same, again and again the same 256 KiB: from and into the cache";
        if (server.name == "ours" || server.name == "before") return server.version + " --store";
        if (server.name == "redis") return "redis-server";
        return "PyTorch " + server.version + " TCPStore" + (server.name.ends_with("-uv") ? ", libuv" : "");
    }

    Server& revived(const std::string& name) {
        std::unique_ptr<Server>& server = standing_.at(name);
        std::string why;
        if (!server || !server->process->running()) server = servers_.start(name, why);
        if (!server) throw std::runtime_error(why);
        return *server;
    }

    Servers servers_;
    std::vector<std::string> names_;
    std::map<std::string, std::unique_ptr<Server>> standing_;
};

Results run_workload(const Workload& workload, Cast& cast, int rounds) {
    Results results{.servers = cast.names_for(workload), .series = {}};
    for (int round = 0; round < std::min(rounds, workload.most_rounds); ++round) {
        for (const std::string& name : results.servers) {
            Series& series = results.series[name];
            if (!series.failure.empty()) continue;
            try {
                series.rounds.push_back(cast.measure(workload, name));
            } catch (const std::exception& error) {
                series.failure = error.what();  // the others go on
            }
        }
    }
    return results;
}

bool wanted(const Workload& workload, const std::vector<std::string>& only) {
    return only.empty() ||
           std::ranges::any_of(only, [&](const std::string& name) { return workload.name.starts_with(name); });
}

void pin_client() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    ::sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

Report run(const RunOptions& asked) {
    RunOptions options = asked;
    if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) options.servers.pin = false;
    if (options.servers.pin) pin_client();
    Cast cast(options);
    Report report{.server_lines = cast.lines, .workloads = {}};
    print_machine(report.server_lines);
    for (const Workload& workload : all_workloads(options.scale)) {
        if (!wanted(workload, options.only)) continue;
        report.workloads.emplace_back(workload, run_workload(workload, cast, options.rounds));
        print_table(workload, report.workloads.back().second);
    }
    return report;
}

std::vector<Workload> all_workloads(const Scale& scale) {
    std::vector<Workload> all;
    append_round_trips(all, scale);
    append_streams(all, scale);
    append_large_values(all, scale);
    append_crowds(all, scale);
    append_memory(all, scale);
    append_fairness(all, scale);
    return all;
}

}  // namespace ddprun::bench

// One request outstanding on each connection: add, and WAIT then GET as PyTorch's get() does.
#include <fmt/format.h>

#include "tests/bench/store/samples.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

/// Values: cycles/s, server CPU µs for each request, p50, p99, p99.9 of a cycle in µs.
std::vector<double> run_cycles(Server& server, std::vector<std::vector<Request>> cycles, double seconds) {
    Fleet fleet(*server.protocol, server.port, cycles.size());
    CycleScript script(std::move(cycles), seconds);
    const Timed timed = run_timed(server, fleet, script);
    auto& latencies = script.cycle_ns;
    const double count = double(latencies.size());
    return {count / timed.seconds, timed.cpu_seconds * 1e6 / double(script.operations),
            percentile(latencies, 0.5) / 1e3, percentile(latencies, 0.99) / 1e3, percentile(latencies, 0.999) / 1e3};
}

std::vector<Metric> metrics(bool crowd) {
    std::vector<Goal> rate{at_least(0.95, "echo"), at_least(1, "redis")};
    if (crowd) rate.push_back(at_least(1.6, "torch"));
    return {{"operations/s", 0, rate},
            {"server CPU us/request", 2, {at_most(1.15, "echo")}},
            {"p50 us", 1},
            {"p99 us", 1, {at_most(1, "redis")}},
            {"p99.9 us", 1}};
}

std::vector<Request> add_cycle(const Protocol& protocol, std::size_t client) {
    return {protocol.add(fmt::format("/add/{:06}", client))};
}

std::vector<Request> wait_get_cycle(const Protocol& protocol, std::size_t client) {
    const std::string key = fmt::format("/bench/{:06}", client);
    return {protocol.check(key), protocol.get(key, kValueBytes)};
}

std::vector<Request> pipelined_wait_get_cycle(const Protocol& protocol, std::size_t client) {
    const std::vector<Request> two = wait_get_cycle(protocol, client);
    return {join(two)};
}

using MakeCycle = std::vector<Request> (*)(const Protocol&, std::size_t);

Workload round_trip(std::string name, std::string what, std::size_t clients, MakeCycle make, double seconds) {
    const auto measure = [=](Server& server) {
        store_values(server, numbered_keys(clients));
        std::vector<std::vector<Request>> cycles;
        for (std::size_t i = 0; i < clients; ++i) cycles.push_back(make(*server.protocol, i));
        return run_cycles(server, std::move(cycles), seconds);
    };
    return {.name = std::move(name),
            .title = fmt::format("{}, {} client{}", what, clients, clients == 1 ? "" : "s"),
            .metrics = metrics(clients >= 8),
            .measure = measure};
}

}  // namespace

void append_round_trips(std::vector<Workload>& all, const Scale& scale) {
    for (const std::size_t clients : {1, 8, 64}) {
        all.push_back(
            round_trip(fmt::format("add{}", clients), "add: one round trip", clients, add_cycle, scale.seconds));
    }
    for (const std::size_t clients : {1, 8, 64}) {
        all.push_back(round_trip(fmt::format("get{}", clients),
                                 "WAIT, then GET of 64 bytes: two round trips, as PyTorch's get()", clients,
                                 wait_get_cycle, scale.seconds));
    }
    for (const std::size_t clients : {1, 8, 64}) {
        all.push_back(round_trip(fmt::format("waitget{}", clients), "WAIT and GET of 64 bytes in one send", clients,
                                 pipelined_wait_get_cycle, scale.seconds));
    }
}

}  // namespace ddprun::bench

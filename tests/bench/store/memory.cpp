// What a server holds: empty, for each key, for each connection that does nothing.
#include <fmt/format.h>

#include "tests/bench/store/clock.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

constexpr std::size_t kSetsPerSmallSend = 32;  // small sends: buffers for large ones are not what is asked about

std::vector<double> measure_keys(Server& server, std::size_t keys) {
    run_once(server, {});
    const double empty = double(server.process->resident_bytes());
    if (server.name == "echo") return {empty / 1e6, kNoValue};
    const std::string value(kValueBytes, 'v');
    std::vector<Request> requests;
    std::vector<Request> sets;
    for (const std::string& key : numbered_keys(keys)) {
        sets.push_back(server.protocol->set(key, value));
        if (sets.size() < kSetsPerSmallSend) continue;
        requests.push_back(join(sets));
        sets.clear();
    }
    const std::size_t stored = requests.size() * kSetsPerSmallSend;
    run_once(server, std::move(requests));
    return {empty / 1e6, (double(server.process->resident_bytes()) - empty) / double(stored)};
}

/// Each connection has made one request, as a worker that trains has.
std::vector<double> measure_idle(Server& server, std::size_t connections) {
    run_once(server, {});
    const double before = double(server.process->resident_bytes());
    const std::uint64_t begin = now_ns();
    Fleet fleet(*server.protocol, server.port, connections);
    const double seconds = double(now_ns() - begin) / 1e9;
    server.process->wait_until_quiet();
    const double after = double(server.process->resident_bytes());
    // How fast one client is varies with the machine's other work; what a request costs beside the idle does not.
    CycleScript adds({{server.protocol->add("/one")}}, 0.5);
    Fleet one(*server.protocol, server.port, 1);
    const Timed timed = run_timed(server, one, adds);
    return {(after - before) / double(connections), double(connections) / seconds,
            double(adds.operations) / timed.seconds, timed.cpu_seconds * 1e6 / double(adds.operations)};
}

}  // namespace

void append_memory(std::vector<Workload>& all, const Scale& scale) {
    const std::size_t keys = scale.quick ? 10'000 : 100'000;
    all.push_back({.name = "memory",
                   .title = fmt::format("resident memory: empty, and for each of {} keys with 64-byte values", keys),
                   .metrics = {{"empty MB", 1, {at_most(10)}}, {"bytes/key", 0, {at_most(1.3, "redis")}}},
                   .measure = [=](Server& server) { return measure_keys(server, keys); },
                   .most_rounds = 3,
                   .fresh_server = true});
    const std::size_t connections = scale.quick ? 500 : 10'000;
    all.push_back({.name = "idle",
                   .title = fmt::format("{} connections that have made one request and are idle", connections),
                   .metrics = {{"bytes/connection", 0, {at_most(4096)}},
                               {"connects+adds/s", 0},
                               {"one client's adds/s", 0},
                               {"server CPU us/add", 2}},
                   .measure = [=](Server& server) { return measure_idle(server, connections); },
                   .most_rounds = 1,
                   .fresh_server = true});
}

}  // namespace ddprun::bench

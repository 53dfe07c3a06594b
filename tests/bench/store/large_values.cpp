// Values of 64 MiB, beside what a bare sender and receiver move over the loopback.
#include <fmt/format.h>

#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

struct Moved {
    double gigabytes_per_second;
    double cpu_ms_per_gigabyte;
};

Moved move_values(Server& server, std::vector<Request> cycle, double seconds) {
    CycleScript script({std::move(cycle)}, seconds);
    Fleet fleet(*server.protocol, server.port, 1);
    const Timed timed = run_timed(server, fleet, script);
    const double gigabytes = double(script.cycle_ns.size()) * double(kLargeValueBytes) / 1e9;
    return {gigabytes / timed.seconds, timed.cpu_seconds * 1e3 / gigabytes};
}

std::vector<double> measure(Server& server, double seconds) {
    const Protocol& protocol = *server.protocol;
    const Moved set =
        move_values(server, {protocol.set("/large", std::string(kLargeValueBytes, 'v')), protocol.sync()}, seconds);
    const Moved get = move_values(server, {protocol.get("/large", kLargeValueBytes)}, seconds);
    run_once(server, {protocol.set("/large", "")});  // gives the memory back
    return {set.gigabytes_per_second, set.cpu_ms_per_gigabyte, get.gigabytes_per_second, get.cpu_ms_per_gigabyte};
}

}  // namespace

void append_large_values(std::vector<Workload>& all, const Scale& scale) {
    all.push_back({.name = "large",
                   .title = "SET and GET of 64 MiB, 1 client (plain: into and from one buffer of 64 MiB; hot: 256 KiB)",
                   .metrics = {{"SET GB/s", 2, {at_least(0.8, "plain")}},
                               {"SET server CPU ms/GB", 0},
                               {"GET GB/s", 2, {at_least(0.8, "plain")}},
                               {"GET server CPU ms/GB", 0}},
                   .measure = [=](Server& server) { return measure(server, scale.seconds); },
                   .plain_floor = true});
}

}  // namespace ddprun::bench

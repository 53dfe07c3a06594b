// Small requests beside one client that moves 64 MiB values: does anybody starve?
#include <fmt/format.h>

#include "tests/bench/store/clock.hpp"
#include "tests/bench/store/samples.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

constexpr std::size_t kSmallClients = 4;
/// The client is one thread too: a longer send or receive would be its own stall, not the server's.
constexpr std::size_t kBytesPerTurn = 64 * 1024;
constexpr double kMaxStallUs = 5000;

/// Connection 0 moves large values, the others add, until the time is over.
class MixedScript final : public Script {
public:
    MixedScript(Request large, Request small, bool with_large, double seconds)
        : large_(std::move(large)),
          small_(std::move(small)),
          with_large_(with_large),
          end_(now_ns() + std::uint64_t(seconds * 1e9)) {}

    const Request* next(std::size_t connection) override {
        if (now_ns() >= end_) return nullptr;
        if (connection > 0) return &small_;
        if (!with_large_) return nullptr;
        ++large_values;
        return &large_;
    }
    void answered(std::size_t connection, const Request&, std::uint64_t ns) override {
        if (connection > 0) small_ns.push_back(ns);
    }

    std::vector<std::uint64_t> small_ns;
    std::uint64_t large_values = 0;

private:
    Request large_, small_;
    bool with_large_;
    std::uint64_t end_;
};

std::vector<double> measure(Server& server, bool set, double seconds) {
    if (server.name == "echo") return std::vector<double>(5, kNoValue);  // sends back, and blocks while it does
    const Protocol& protocol = *server.protocol;
    const Request stored = protocol.set("/large", std::string(kLargeValueBytes, 'v'));
    if (!set) run_once(server, {stored});
    // A store does not answer a SET: the request after it tells that it was served.
    const std::vector<Request> set_and_sync{stored, protocol.sync()};
    const Request large = set ? join(set_and_sync) : protocol.get("/large", kLargeValueBytes);
    const Request small = protocol.add("/small");
    Fleet fleet(protocol, server.port, 1 + kSmallClients, kBytesPerTurn);
    MixedScript alone(large, small, false, seconds);
    fleet.run(alone);
    MixedScript mixed(large, small, true, seconds);
    const Timed timed = run_timed(server, fleet, mixed);
    run_once(server, {protocol.set("/large", "")});  // gives the memory back
    const double gigabytes = double(mixed.large_values) * double(kLargeValueBytes) / 1e9;
    return {percentile(alone.small_ns, 0.5) / 1e3, percentile(mixed.small_ns, 0.5) / 1e3,
            percentile(mixed.small_ns, 0.99) / 1e3, percentile(mixed.small_ns, 1) / 1e3, gigabytes / timed.seconds};
}

}  // namespace

void append_fairness(std::vector<Workload>& all, const Scale& scale) {
    for (const bool set : {true, false}) {
        all.push_back({.name = set ? "fairset" : "fairget",
                       .title = fmt::format("add by {} clients while another {} 64 MiB values", kSmallClients,
                                            set ? "stores" : "reads"),
                       .metrics = {{"p50 us, alone", 1},
                                   {"p50 us", 1},
                                   {"p99 us", 1, {at_most(1, "redis")}},
                                   {"longest us", 0, {at_most(kMaxStallUs)}},
                                   {"64 MiB values GB/s", 2, {at_least(1, "redis")}}},
                       .measure = [=](Server& server) { return measure(server, set, scale.seconds); }});
    }
}

}  // namespace ddprun::bench

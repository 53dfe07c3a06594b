// Many requests under way on each connection, and many keys in one request.
#include <fmt/format.h>

#include "tests/bench/store/clock.hpp"
#include "tests/bench/store/samples.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

constexpr std::size_t kSetsPerSend = 512;
constexpr std::size_t kDepth = 64;
constexpr std::size_t kKeysPerMultiGet = 1000;
constexpr double kStreamGoal = 1.5e6;

/// Each connection sends its batch again and again without waiting; one last request tells that all were served.
class StreamScript final : public Script {
public:
    StreamScript(std::vector<Request> batches, Request last, double seconds)
        : batches_(std::move(batches)),
          last_(std::move(last)),
          closing_(batches_.size()),
          end_(now_ns() + std::uint64_t(seconds * 1e9)) {}

    const Request* next(std::size_t connection) override {
        if (closing_[connection]) return nullptr;
        if (now_ns() >= end_) {
            closing_[connection] = true;
            return &last_;
        }
        operations += batches_[connection].operations;
        return &batches_[connection];
    }

    std::uint64_t operations = 0;

private:
    std::vector<Request> batches_;
    Request last_;
    std::vector<bool> closing_;
    std::uint64_t end_;
};

Workload streamed_set(std::size_t clients, double seconds) {
    const auto measure = [=](Server& server) -> std::vector<double> {
        const std::string value(kValueBytes, 'v');
        std::vector<Request> batches;
        for (std::size_t client = 0; client < clients; ++client) {
            std::vector<Request> sets;
            for (std::size_t i = 0; i < kSetsPerSend; ++i) {
                sets.push_back(server.protocol->set(fmt::format("/stream/{:03}/{:04}", client, i), value));
            }
            batches.push_back(join(sets));
            batches.back().await = false;
        }
        StreamScript script(std::move(batches), server.protocol->sync(), seconds);
        Fleet fleet(*server.protocol, server.port, clients);
        const Timed timed = run_timed(server, fleet, script);
        const double operations = double(script.operations);
        return {operations / timed.seconds, timed.cpu_seconds * 1e6 / operations};
    };
    std::vector<Goal> goals;
    if (clients == 8) goals.push_back(at_least(kStreamGoal));
    return {.name = fmt::format("set{}", clients),
            .title = fmt::format("set of 64 bytes, streamed, {} client{}", clients, clients == 1 ? "" : "s"),
            .metrics = {{"operations/s", 0, goals}, {"server CPU us/request", 2}},
            .measure = measure};
}

Workload pipelined_add(std::size_t clients, double seconds) {
    const auto measure = [=](Server& server) -> std::vector<double> {
        std::vector<std::vector<Request>> cycles;
        for (std::size_t client = 0; client < clients; ++client) {
            const std::vector<Request> adds(kDepth, server.protocol->add(fmt::format("/add/{:06}", client)));
            cycles.push_back({join(adds)});
        }
        CycleScript script(std::move(cycles), seconds);
        Fleet fleet(*server.protocol, server.port, clients);
        const Timed timed = run_timed(server, fleet, script);
        const double operations = double(script.operations);
        return {operations / timed.seconds, timed.cpu_seconds * 1e6 / operations};
    };
    return {.name = "pipeline",
            .title = fmt::format("add, {} requests in one send, {} clients", kDepth, clients),
            .metrics = {{"operations/s", 0, {at_least(kStreamGoal)}}, {"server CPU us/request", 2}},
            .measure = measure};
}

double keys_per_second(Server& server, std::vector<Request> cycle, double seconds) {
    CycleScript script({std::move(cycle)}, seconds);
    Fleet fleet(*server.protocol, server.port, 1);
    const Timed timed = run_timed(server, fleet, script);
    return double(script.operations) / timed.seconds;
}

std::vector<double> measure_multi_get(Server& server, double seconds) {
    const std::vector<std::string> keys = numbered_keys(kKeysPerMultiGet);
    store_values(server, keys);
    std::vector<Request> gets;
    for (const std::string& key : keys) gets.push_back(server.protocol->get(key, kValueBytes));
    const double single = keys_per_second(server, std::move(gets), seconds / 2);
    Request all = server.protocol->multi_get(keys, kValueBytes);
    if (all.bytes.empty()) return {kNoValue, single, kNoValue};
    const double together = keys_per_second(server, {std::move(all)}, seconds / 2);
    return {together, single, together / single};
}

}  // namespace

void append_streams(std::vector<Workload>& all, const Scale& scale) {
    for (const std::size_t clients : {1, 8, 64}) all.push_back(streamed_set(clients, scale.seconds));
    all.push_back(pipelined_add(8, scale.seconds));
    all.push_back(
        {.name = "multiget",
         .title = fmt::format("MULTI_GET of {0} keys beside {0} GETs one after the other, 1 client", kKeysPerMultiGet),
         .metrics = {{"MULTI_GET keys/s", 0, {at_least(1, "redis")}},
                     {"GET keys/s", 0},
                     {"MULTI_GET over GET", 1, {at_least(10)}}},
         .measure = [=](Server& server) { return measure_multi_get(server, scale.seconds); }});
}

}  // namespace ddprun::bench

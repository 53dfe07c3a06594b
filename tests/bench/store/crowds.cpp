// Many clients that meet: barriers, the start of a job, a key that a thousand wait for.
#include <fmt/format.h>

#include "tests/bench/store/clock.hpp"
#include "tests/bench/store/samples.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/workload.hpp"

namespace ddprun::bench {
namespace {

/// A name that no earlier measurement used.
std::string fresh_name() {
    static int count = 0;
    return fmt::format("/meet/{:06}", ++count);
}

/// Adds, then waits for the key that the last one sets: a barrier as PyTorch's clients make it.
class BarrierScript final : public Script {
public:
    BarrierScript(const Protocol& protocol, const std::string& name, std::size_t clients)
        : add_(protocol.add(name + "/count")),
          wait_(protocol.block(name + "/last")),
          release_(protocol.release(name + "/last", clients)),
          steps_(clients) {}

    const Request* next(std::size_t connection) override {
        switch (steps_[connection]++) {
            case 0: return &add_;
            case 1:
                if (++arrived_ < steps_.size()) steps_[connection] = 3;
                return arrived_ < steps_.size() ? &wait_ : &release_;
            case 2: return &wait_;
            default: return nullptr;
        }
    }

private:
    Request add_, wait_, release_;
    std::vector<int> steps_;
    std::size_t arrived_ = 0;
};

using MakeScript = std::function<std::unique_ptr<Script>(const Protocol&, std::size_t clients)>;

/// Values: median ms from the first send to the last answer; server CPU us for each client.
std::vector<double> meet(Server& server, std::size_t clients, int times, const MakeScript& make) {
    Fleet fleet(*server.protocol, server.port, clients);
    std::vector<double> milliseconds, cpu_us;
    for (int i = 0; i < times; ++i) {
        const std::unique_ptr<Script> script = make(*server.protocol, clients);
        const Timed timed = run_timed(server, fleet, *script);
        milliseconds.push_back(timed.seconds * 1e3);
        cpu_us.push_back(timed.cpu_seconds * 1e6 / double(clients));
    }
    return {median(std::move(milliseconds)), median(std::move(cpu_us))};
}

Workload barrier(std::size_t clients, bool quick) {
    const auto measure = [=](Server& server) {
        return meet(server, clients, quick ? 3 : 30, [](const Protocol& protocol, std::size_t count) {
            return std::make_unique<BarrierScript>(protocol, fresh_name(), count);
        });
    };
    return {.name = fmt::format("barrier{}", clients),
            .title = fmt::format("barrier of {} clients: add, then wait for the last one's key (echo: two round trips, "
                                 "which wait for nobody; gate: the same messages)",
                                 clients),
            .metrics = {{"ms", 2, {at_most(1.2, "echo"), at_most(1.1, "gate")}}, {"server CPU us/client", 1}},
            .measure = measure,
            .gate_floor = true};
}

Workload barrier_request(std::size_t clients, bool quick) {
    const auto measure = [=](Server& server) -> std::vector<double> {
        if (server.protocol->barrier("/", clients).bytes.empty()) return {kNoValue, kNoValue};
        return meet(server, clients, quick ? 3 : 30, [](const Protocol& protocol, std::size_t count) {
            const std::vector<Request> once{protocol.barrier(fresh_name(), count)};
            return std::make_unique<OnceScript>(std::vector<std::vector<Request>>(count, once));
        });
    };
    return {.name = fmt::format("request{}", clients),
            .title = fmt::format("barrier of {} clients by one BARRIER request each (echo: one round trip)", clients),
            .metrics = {{"ms", 2, {at_most(1.2, "echo"), at_most(1.1, "gate")}}, {"server CPU us/client", 1}},
            .measure = measure,
            .gate_floor = true};
}

/// What 64 gloo ranks ask when they connect to each other: own address stored, then every peer's awaited and read.
Workload gloo_start(std::size_t ranks, bool quick) {
    const auto measure = [=](Server& server) {
        return meet(server, ranks, quick ? 1 : 3, [](const Protocol& protocol, std::size_t count) {
            const std::string name = fresh_name();
            const auto key = [&](std::size_t rank) { return fmt::format("{}/{}", name, rank); };
            std::vector<std::vector<Request>> requests(count);
            for (std::size_t rank = 0; rank < count; ++rank) {
                requests[rank].push_back(protocol.set(key(rank), std::string(kValueBytes, 'v')));
                for (std::size_t peer = 0; peer < count; ++peer) {
                    requests[rank].push_back(protocol.check(key(peer)));
                    requests[rank].push_back(protocol.get(key(peer), kValueBytes));
                }
            }
            return std::make_unique<OnceScript>(std::move(requests));
        });
    };
    return {.name = fmt::format("gloo{}", ranks),
            .title = fmt::format("start of {} gloo ranks: SET own key, WAIT and GET every peer's, {} requests", ranks,
                                 ranks * (1 + 2 * ranks)),
            .metrics = {{"ms", 1, {at_most(1, "torch")}}, {"server CPU us/client", 1}},
            .measure = measure};
}

/// How long from the SET of a key until all who wait for it know.
std::vector<double> measure_release(Server& server, std::size_t clients) {
    const std::string key = fresh_name();
    const Request block = server.protocol->block(key);
    const Request release = server.protocol->release(key, clients);
    Fleet waiting(*server.protocol, server.port, clients);
    Fleet setter(*server.protocol, server.port, 1);
    const bool echo = server.name == "echo";  // blocks nobody: all its round trips are timed
    std::uint64_t begin = now_ns();
    for (std::size_t i = 0; i < clients; ++i) waiting.post(i, block);
    if (!echo) {
        server.process->wait_until_quiet();
        begin = now_ns();
        setter.post(0, release);
    }
    OnceScript nothing_more{std::vector<std::vector<Request>>(clients)};
    waiting.run(nothing_more);
    return {double(now_ns() - begin) / 1e6};
}

Workload release(std::size_t clients) {
    return {
        .name = fmt::format("release{}", clients),
        .title = fmt::format(
            "{} clients that wait for one key: from its SET to the last release (echo: as many round trips)", clients),
        .metrics = {{"ms", 2, {at_most(20)}}},
        .measure = [=](Server& server) { return measure_release(server, clients); },
        .gate_floor = true};
}

}  // namespace

void append_crowds(std::vector<Workload>& all, const Scale& scale) {
    for (const std::size_t clients : {64, 256}) all.push_back(barrier(clients, scale.quick));
    for (const std::size_t clients : {64, 256}) all.push_back(barrier_request(clients, scale.quick));
    all.push_back(gloo_start(scale.quick ? 16 : 64, scale.quick));
    all.push_back(release(scale.quick ? 64 : 1024));
}

}  // namespace ddprun::bench

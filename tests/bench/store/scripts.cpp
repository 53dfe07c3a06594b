#include "tests/bench/store/scripts.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "tests/bench/store/clock.hpp"

namespace ddprun::bench {
namespace {

/// After so long an answer it is worth looking at the clock.
constexpr std::uint64_t kLongNs = 100'000;
/// The clock of a process that runs on another CPU lags by up to a tick; once it sleeps the clock is exact.
constexpr std::chrono::milliseconds kSettle{1};

}  // namespace

CycleScript::CycleScript(std::vector<std::vector<Request>> cycles, double seconds)
    : cycles_(std::move(cycles)),
      positions_(cycles_.size()),
      spent_ns_(cycles_.size()),
      end_(now_ns() + std::uint64_t(seconds * 1e9)) {
    cycle_ns.reserve(1 << 16);
}

const Request* CycleScript::next(std::size_t connection) {
    std::size_t& position = positions_[connection];
    if (position == 0 && seen_ >= end_) return nullptr;
    const Request& request = cycles_[connection][position];
    position = (position + 1) % cycles_[connection].size();
    return &request;
}

void CycleScript::answered(std::size_t connection, const Request& request, std::uint64_t ns) {
    operations += request.operations;
    spent_ns_[connection] += ns;
    if (positions_[connection] == 0) cycle_ns.push_back(std::exchange(spent_ns_[connection], 0));
    if (++answers_ % 16 == 0 || ns > kLongNs) seen_ = now_ns();
}

Timed run_timed(Server& server, Fleet& fleet, Script& script) {
    const std::uint64_t cpu = server.process->cpu_ns();
    const std::uint64_t begin = now_ns();
    fleet.run(script);
    const std::uint64_t end = now_ns();
    std::this_thread::sleep_for(kSettle);
    return {.seconds = double(end - begin) / 1e9, .cpu_seconds = double(server.process->cpu_ns() - cpu) / 1e9};
}

void run_once(Server& server, std::vector<Request> requests) {
    requests.push_back(server.protocol->sync());
    Fleet fleet(*server.protocol, server.port, 1);
    OnceScript script({std::move(requests)});
    fleet.run(script);
}

void store_values(Server& server, const std::vector<std::string>& keys) {
    const std::string value(kValueBytes, 'v');
    std::vector<Request> requests;
    for (const std::string& key : keys) requests.push_back(server.protocol->set(key, value));
    run_once(server, {join(requests)});
}

std::vector<std::string> numbered_keys(std::size_t count) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(fmt::format("/bench/{:06}", i));
    return keys;
}

}  // namespace ddprun::bench

#pragma once
// Worlds with a failure: the error of each rank, with every rank's group kept alive as long as the test needs it, so
// that only the failure under test can be seen.

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"

namespace ddp::testing {

using Culprits = std::vector<int>;

/// Returns the beginning of a rank's name in errors; the address may follow.
inline std::string named(int rank) {
    return fmt::format("rank {} (host {}, pid {}", rank, detail::hostname(), ::getpid());
}

/// Runs `body(Context&)` on every rank. Returns the ddp::Error that each threw, by rank.
template <typename Body>
std::vector<std::optional<Error>> errors_of(const LocalWorld& world, Body body) {
    std::vector<std::optional<Error>> errors;
    for (const auto& outcome : try_ranks(world, body)) errors.push_back(outcome.ddp_error());
    return errors;
}

/// Opens when `count` ranks have arrived.
class Gate {
public:
    explicit Gate(int count) : count_(count) {}
    void pass() {
        std::unique_lock lock(mutex_);
        if (--count_ == 0) changed_.notify_all();
        changed_.wait(lock, [this] { return count_ <= 0; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int count_;
};

/// Runs the body and passes the gate even when it throws.
template <typename Body>
auto behind(Gate& gate, Body body) {
    return [&gate, body](Context& context) {
        try {
            body(context);
        } catch (...) {
            gate.pass();
            throw;
        }
        gate.pass();
    };
}

}  // namespace ddp::testing

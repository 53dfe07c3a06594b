#pragma once
// Scripts that more than one workload uses.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/store/fleet.hpp"
#include "tests/bench/store/servers.hpp"

namespace ddprun::bench {

inline constexpr std::size_t kValueBytes = 64;
inline constexpr std::size_t kLargeValueBytes = std::size_t{64} << 20;

/// Each connection sends its own list of requests once.
class OnceScript : public Script {
public:
    explicit OnceScript(std::vector<std::vector<Request>> requests)
        : requests_(std::move(requests)), positions_(requests_.size()) {}

    const Request* next(std::size_t connection) override {
        std::size_t& position = positions_[connection];
        return position < requests_[connection].size() ? &requests_[connection][position++] : nullptr;
    }

private:
    std::vector<std::vector<Request>> requests_;
    std::vector<std::size_t> positions_;
};

/// Each connection repeats its own list of requests, its cycle, until the time is over; at the end of a cycle.
class CycleScript final : public Script {
public:
    CycleScript(std::vector<std::vector<Request>> cycles, double seconds);

    const Request* next(std::size_t connection) override;
    void answered(std::size_t connection, const Request& request, std::uint64_t ns) override;

    std::uint64_t operations = 0;
    std::vector<std::uint64_t> cycle_ns;  ///< how long each cycle took

private:
    std::vector<std::vector<Request>> cycles_;
    std::vector<std::size_t> positions_;
    std::vector<std::uint64_t> spent_ns_;
    std::uint64_t end_;
    std::uint64_t seen_ = 0;  // the time, now and then
    std::uint64_t answers_ = 0;
};

struct Timed {
    double seconds;
    double cpu_seconds;  ///< of the server
};
[[nodiscard]] Timed run_timed(Server& server, Fleet& fleet, Script& script);

/// Stores 64 bytes under each key; all are stored when it returns.
void store_values(Server& server, const std::vector<std::string>& keys);

/// "/bench/000000" and on.
[[nodiscard]] std::vector<std::string> numbered_keys(std::size_t count);

/// Sends the requests on one new connection, one after the other; all are served when it returns.
void run_once(Server& server, std::vector<Request> requests);

}  // namespace ddprun::bench

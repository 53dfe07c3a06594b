#pragma once
// A meeting point in memory, shared by the agents of a test, and an agent whose daemon and network are a few variables.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/meeting/meet.hpp"

namespace meeting_test {

using namespace ddprun;
using namespace ddprun::launcher;

/// One value per name, versions as etcd counts them. `before_claim` runs before each claim: the other side of a race.
class MemoryPoint final : public MeetingPoint {
public:
    Result<std::optional<Published>> read(const std::string& name) override {
        ++reads;
        if (on_read) on_read();
        return find(name);
    }
    Result<Claim> claim(const std::string& name, const std::string& value,
                        const std::optional<Published>& replaces) override {
        if (auto race = std::exchange(before_claim, nullptr)) race();
        const auto there = find(name);
        if (there != replaces) return Claim{false, there};
        return Claim{true, put(name, value)};
    }
    Result<void> withdraw(const std::string& name, const Published& mine) override {
        if (find(name) == mine) values.erase(name);
        return {};
    }
    std::string where(const std::string& name) const override { return "memory, " + name; }
    std::string removal(const std::string& name) const override { return "forget " + name; }
    std::string own_address() const override { return "10.0.0.9"; }

    std::optional<Published> find(const std::string& name) const {
        const auto it = values.find(name);
        return it == values.end() ? std::nullopt : std::optional(it->second);
    }
    Published put(const std::string& name, const std::string& value) { return values[name] = {value, ++version}; }

    std::map<std::string, Published> values;
    std::int64_t version = 0;
    int reads = 0;
    std::function<void()> before_claim;
    std::function<void()> on_read;
};

inline DaemonRecord record_of(std::uint16_t port, const std::string& host = "n1") {
    return {{"10.0.0.1", port}, host, 71, "claim-" + std::to_string(port)};
}

/// Time passes only in pause().
class FakeNode final : public MeetingNode {
public:
    Result<std::optional<DaemonRecord>> start_daemon(const std::string& seen_from) override {
        ++starts;
        bound_at = seen_from;
        if (port_is_taken) return std::optional<DaemonRecord>{};
        return std::optional(record_of(static_cast<std::uint16_t>(own_port + starts - 1), "own"));
    }
    void stop_daemon() override { ++stops; }
    bool daemon_runs() override { return starts > ends_of_daemons; }
    Reach reach(const Endpoint& address) override {
        asked.push_back(address.port);
        if (on_ask) on_ask();
        const auto it = answers.find(address.port);
        return it == answers.end() ? Reach::kEnded : it->second;
    }
    void report(const std::string& line) override { reports.push_back(line); }
    void pause(Duration duration) override {
        pauses.push_back(duration);
        time += duration;
    }
    TimePoint now() const override { return time; }
    std::string host() const override { return "own"; }

    std::uint16_t own_port = 1000;
    bool port_is_taken = false;
    std::map<std::uint16_t, Reach> answers;  ///< others are refused
    int ends_of_daemons = 0;                 ///< so many of its daemons have ended before they were claimed
    int starts = 0;
    int stops = 0;
    std::string bound_at;
    std::vector<std::uint16_t> asked;
    std::function<void()> on_ask;
    std::vector<Duration> pauses;
    std::vector<std::string> reports;
    TimePoint time{};
};

}  // namespace meeting_test

#include "worker_lib/src/bootstrap/store_adapter.hpp"

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/mutex.hpp"
#include "ddp/error.hpp"
#include "rendezvous/store/client/client.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::detail {

namespace {

using ddprun::Clock;
using ddprun::Errc;
using ddprun::TimePoint;
using ddprun::store::Client;

/// Time that a call without a timeout has for reconnecting. On a healthy connection it does not wait.
constexpr auto kReconnect = std::chrono::seconds(30);

[[noreturn]] void raise(const ddprun::Error& error) {
    const bool late = error.code == Errc::kTimeout;
    const bool gone = error.code == Errc::kClosed || error.code == Errc::kUnreachable;
    throw Error(late ? ErrorCode::Timeout : gone ? ErrorCode::PeerLost : ErrorCode::System, "store: " + error.message);
}

/// Owns a pool of connections to the store. A client serves one call at a time, and get() may wait for long. So each
/// call takes a connection of its own, and the pool grows to the number of threads that call at the same time.
class TcpStore final : public Store {
public:
    TcpStore(Client first, std::string name)
        : endpoint_(first.endpoint()), name_(std::move(name)), address_(first.local_address()) {
        idle_.push_back(std::move(first));
    }

    void set(std::string_view key, std::string_view value) override {
        with_client(Clock::now() + kReconnect, [&](Client& client) { return client.set(key, value); });
    }

    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        const TimePoint deadline = deadline_in(timeout);
        std::string value;
        with_client(deadline, [&](Client& client) -> ddprun::Result<void> {
            auto got = client.get(key, deadline);
            if (!got) return got.error();
            value = std::move(*got);
            return {};
        });
        return value;
    }

    std::vector<std::string> get_all(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
        const TimePoint deadline = deadline_in(timeout);
        std::vector<std::string> values;
        with_client(deadline, [&](Client& client) -> ddprun::Result<void> {
            auto got = client.multi_get(keys, deadline);
            if (!got) return got.error();
            values = std::move(*got);
            return {};
        });
        return values;
    }

    std::optional<std::string> try_get(std::string_view key, std::chrono::milliseconds timeout) override {
        std::optional<std::string> value;
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            const std::array<std::string, 1> keys{std::string(key)};
            const auto came = client.try_wait(keys, deadline_in(timeout));
            if (!came) return came.error();
            if (!*came) return {};
            auto got = client.get(key, Clock::now() + kReconnect);
            if (!got) return got.error();
            value = std::move(*got);
            return {};
        });
        return value;
    }

    bool wait_for_keys(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
        bool came = false;
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            const auto answer = client.try_wait(keys, deadline_in(timeout));
            if (!answer) return answer.error();
            came = *answer;
            return {};
        });
        return came;
    }

    std::vector<std::string> missing(const std::vector<std::string>& keys) override {
        std::vector<std::string> absent;
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            auto found = client.missing(keys);
            if (!found) return found.error();
            absent = std::move(*found);
            return {};
        });
        return absent;
    }

    /// For TCPStore an empty expected value means that the key does not exist.
    std::string set_once(std::string_view key, std::string_view value) override {
        std::string there;
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            auto answer = client.compare_set(key, {}, value);
            if (!answer) return answer.error();
            there = std::move(*answer);
            return {};
        });
        return there;
    }

    void erase(std::string_view key) override {
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            const auto erased = client.delete_key(key);
            if (!erased) return erased.error();
            return {};
        });
    }

    std::int64_t add(std::string_view key, std::int64_t amount) override {
        std::int64_t sum = 0;
        with_client(Clock::now() + kReconnect, [&](Client& client) -> ddprun::Result<void> {
            const auto result = client.add(key, amount);
            if (!result) return result.error();
            sum = *result;
            return {};
        });
        return sum;
    }

    std::string local_address() const override { return address_; }

private:
    template <typename Call>
    void with_client(TimePoint deadline, Call call) {
        Client client = take(deadline);
        const ddprun::Result<void> result = call(client);
        // After any error but a timeout of a wait the connection is closed.
        if (result || result.error().code == Errc::kTimeout) give_back(std::move(client));
        if (!result) raise(result.error());
    }

    Client take(TimePoint deadline) {
        {
            const ddprun::Lock lock(mutex_);
            if (!idle_.empty()) {
                Client client = std::move(idle_.back());
                idle_.pop_back();
                return client;
            }
        }
        auto client = Client::connect(endpoint_, deadline, name_);
        if (!client) raise(client.error());
        return std::move(*client);
    }

    void give_back(Client client) {
        const ddprun::Lock lock(mutex_);
        idle_.push_back(std::move(client));
    }

    const ddprun::Endpoint endpoint_;
    const std::string name_;  ///< of this rank, for errors
    const std::string address_;
    ddprun::Mutex mutex_;
    std::vector<Client> idle_ GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<Store> connect_store(const Environment& environment, std::chrono::milliseconds timeout,
                                     std::chrono::milliseconds notice_after) {
    const ddprun::Endpoint endpoint{environment.master_addr, static_cast<std::uint16_t>(environment.master_port)};
    const std::string name = "rank " + std::to_string(environment.rank);
    const auto report = [](const std::string& text) {
        const std::string line = "[ddp] the store of this job (MASTER_ADDR, MASTER_PORT): " + text + "\n";
        std::fputs(line.c_str(), stderr);  // one write: ranks may share stderr
    };
    auto client = Client::connect(endpoint, deadline_in(timeout), name, {.after = notice_after, .report = report});
    if (!client) {
        throw Error(ErrorCode::Timeout,
                    "cannot reach the store of this job (MASTER_ADDR, MASTER_PORT): " + client.error().message);
    }
    return std::make_shared<TcpStore>(std::move(*client), name);
}

}  // namespace ddp::detail

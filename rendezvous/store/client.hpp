#pragma once
// A blocking TCPStore client for worker_lib and for tests, in the protocol's modern dialect. Plain sockets, no Asio: a
// worker pays for nothing more. Keys go to the store as they are given. One object, one thread at a time. After an
// error other than kTimeout of a wait the connection is closed for good. A store that stays silent for a minute counts
// as lost (kTimeout).

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::store {

class Client {
public:
    /// Connects, retrying while nobody listens there (the server may be starting), until `deadline`.
    /// Errors: kUnreachable or kTimeout with the endpoint, the number of tries and the last cause.
    [[nodiscard]] static Result<Client> connect(const Endpoint& endpoint, TimePoint deadline);

    [[nodiscard]] Result<void> set(std::string_view key, std::string_view value);
    /// Waits for the key, then reads it. kTimeout names the key and how long was waited.
    [[nodiscard]] Result<std::string> get(std::string_view key, TimePoint deadline);
    /// Adds to the decimal counter at `key` (missing: 0) and returns the sum.
    [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t amount);
    [[nodiscard]] Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                                  std::string_view desired);
    /// Waits until every key is there. kTimeout names the keys and how long was waited; the client stays usable.
    [[nodiscard]] Result<void> wait(std::span<const std::string> keys, TimePoint deadline);
    /// Whether every key is there now.
    [[nodiscard]] Result<bool> check(std::span<const std::string> keys);
    /// Whether the key was there.
    [[nodiscard]] Result<bool> delete_key(std::string_view key);
    [[nodiscard]] Result<std::int64_t> num_keys();

    /// The numeric address that this host uses to reach the store: the right one to give to other workers.
    [[nodiscard]] std::string local_address() const;
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

private:
    Client(UniqueFd socket, Endpoint endpoint) : socket_(std::move(socket)), endpoint_(std::move(endpoint)) {}

    [[nodiscard]] Result<void> send(std::string_view request);
    [[nodiscard]] Result<void> receive(std::span<char> into);
    template <typename T>
    [[nodiscard]] Result<T> receive_number();
    [[nodiscard]] Result<std::string> receive_bytes();
    template <typename T>
    [[nodiscard]] Result<T> ask_number(std::string_view request);
    /// Ends a wait whose deadline has passed. True: the keys came at the last moment.
    [[nodiscard]] Result<bool> cancel_wait();
    /// "cannot <action> at <endpoint>: <cause>"; the connection is closed, for nobody knows where the stream stands.
    [[nodiscard]] Error give_up(std::string_view action, const Error& cause);

    UniqueFd socket_;
    Endpoint endpoint_;
};

}  // namespace ddprun::store

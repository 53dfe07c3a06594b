#pragma once
// Client: owns a blocking connection to a TCPStore, for worker_lib and for tests. It speaks the modern dialect, so it
// works with PyTorch's servers as well, and uses no Asio, so that a worker links nothing more. Keys go to the store as
// they are given. One thread uses it at a time. After any error but the kTimeout of a wait, the connection stays
// closed. A store that does not answer for a minute counts as lost (kTimeout).

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/store/client/connect.hpp"
#include "rendezvous/store/client/requests.hpp"
#include "rendezvous/store/client/stream.hpp"

namespace ddprun::store {

class Client {
public:
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    /// Connects, retrying while nothing listens there (the server may be starting), until `deadline`. `name` begins its
    /// messages, that of `notice` too: "rank 3". Errors: kUnreachable, kTimeout or kMismatch with the endpoint, the
    /// number of tries and the last cause.
    [[nodiscard]] static Result<Client> connect(const Endpoint& endpoint, TimePoint deadline, std::string name = {},
                                                const SlowNotice& notice = {});

    [[nodiscard]] Result<void> set(std::string_view key, std::string_view value);
    /// Sets all pairs at once: no client sees some without the others.
    [[nodiscard]] Result<void> multi_set(const Pairs& pairs);
    /// Waits for the key until `deadline`, then reads it, which may take a minute more. Errors: as wait(); an error of
    /// the read closes the connection.
    [[nodiscard]] Result<std::string> get(std::string_view key, TimePoint deadline);
    /// Waits for all the keys, then reads them: two round trips, however many they are.
    [[nodiscard]] Result<std::vector<std::string>> multi_get(std::span<const std::string> keys, TimePoint deadline);
    /// Adds to the decimal counter at `key` (missing: 0) and returns the sum.
    [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t amount);
    [[nodiscard]] Result<void> append(std::string_view key, std::string_view value);
    /// Sets the key to `desired` if its value is `expected`; a missing key counts as empty. Returns the key's value
    /// after the call. If the key is missing and stays so, returns `expected`.
    [[nodiscard]] Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                                  std::string_view desired);
    /// Waits until every key is there. kTimeout names the waiter, the time, the missing keys and similar keys that are
    /// there; the client stays usable.
    [[nodiscard]] Result<void> wait(std::span<const std::string> keys, TimePoint deadline);
    /// Waits in the same way, but returns false in place of kTimeout and asks for no hint. For callers that wait again.
    [[nodiscard]] Result<bool> try_wait(std::span<const std::string> keys, TimePoint deadline);
    /// Returns whether every key is there now.
    [[nodiscard]] Result<bool> check(std::span<const std::string> keys);
    /// Returns those of `keys` that are not there now, in one round trip.
    [[nodiscard]] Result<std::vector<std::string>> missing(std::span<const std::string> keys);
    /// Returns whether the key was there.
    [[nodiscard]] Result<bool> delete_key(std::string_view key);
    /// Sends several requests in one write. Returns one answer for each.
    [[nodiscard]] Result<std::vector<Answer>> run(const Batch& batch);

    /// Returns the numeric address that this host uses to reach the store: the right one to give to other workers.
    [[nodiscard]] std::string local_address() const { return stream_.local_address(); }
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

private:
    Client(ClientStream stream, Endpoint endpoint, std::string name)
        : stream_(std::move(stream)), endpoint_(std::move(endpoint)), name_(std::move(name)) {}

    [[nodiscard]] Result<void> send(std::string_view request);
    [[nodiscard]] Result<std::int64_t> ask_number(std::string_view request);
    /// Ends a wait whose deadline has passed. Returns whether the keys arrived at the last moment.
    [[nodiscard]] Result<bool> cancel_wait();
    [[nodiscard]] Result<Answer> receive(Batch::ReplyKind expected);
    /// Returns the error of a wait whose deadline has passed.
    [[nodiscard]] Error wait_timeout(std::span<const std::string> keys, Duration waited);
    /// Closes the connection, because the position in its stream is unknown. Returns "cannot <action> at <endpoint>:
    /// <cause>".
    [[nodiscard]] Error give_up(std::string_view action, const Error& cause);

    ClientStream stream_;
    Endpoint endpoint_;
    std::string name_;  ///< empty, or ends in a blank
};

}  // namespace ddprun::store

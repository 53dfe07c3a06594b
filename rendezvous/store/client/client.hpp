#pragma once
// A blocking TCPStore client for worker_lib and for tests, in the protocol's modern dialect: it works with PyTorch's
// own servers as well. Plain sockets, no Asio: a worker pays for nothing more. Keys go to the store as they are given;
// PrefixStore puts prefixes before them. One object, one thread at a time. After an error other than kTimeout of a wait
// the connection is closed for good. A store that stays silent for a minute counts as lost (kTimeout).

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
#include "rendezvous/store/client_batch.hpp"
#include "rendezvous/store/client_impatience.hpp"
#include "rendezvous/store/client_stream.hpp"

namespace ddprun::store {

class Client {
public:
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    /// Connects, retrying while nobody listens there (the server may be starting), until `deadline`. `who` begins its
    /// messages: "rank 3"; also that of `impatience`, which is told once why it takes so long. Errors: kUnreachable,
    /// kTimeout or kMismatch with the endpoint, the number of tries and the last cause.
    [[nodiscard]] static Result<Client> connect(const Endpoint& endpoint, TimePoint deadline, std::string who = {},
                                                const Impatience& impatience = {});

    [[nodiscard]] Result<void> set(std::string_view key, std::string_view value);
    /// All of them at once: nobody sees some without the others.
    [[nodiscard]] Result<void> multi_set(const Pairs& pairs);
    /// Waits for the key, then reads it. kTimeout: as wait().
    [[nodiscard]] Result<std::string> get(std::string_view key, TimePoint deadline);
    /// Waits for all the keys, then reads them: two round trips, however many they are.
    [[nodiscard]] Result<std::vector<std::string>> multi_get(std::span<const std::string> keys, TimePoint deadline);
    /// Adds to the decimal counter at `key` (missing: 0) and returns the sum.
    [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t amount);
    [[nodiscard]] Result<void> append(std::string_view key, std::string_view value);
    [[nodiscard]] Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                                  std::string_view desired);
    /// Waits until every key is there. kTimeout says who waited how long, which keys are missing, and what there is
    /// instead; the client stays usable.
    [[nodiscard]] Result<void> wait(std::span<const std::string> keys, TimePoint deadline);
    /// The same, but false where wait() is late: costs nothing more, for those who wait again.
    [[nodiscard]] Result<bool> came_by(std::span<const std::string> keys, TimePoint deadline);
    /// Whether every key is there now.
    [[nodiscard]] Result<bool> check(std::span<const std::string> keys);
    /// Those of `keys` that are not there now, in one round trip.
    [[nodiscard]] Result<std::vector<std::string>> missing(std::span<const std::string> keys);
    /// Whether the key was there.
    [[nodiscard]] Result<bool> delete_key(std::string_view key);
    [[nodiscard]] Result<std::int64_t> num_keys();
    /// Several requests in one write. One answer for each.
    [[nodiscard]] Result<std::vector<Answer>> run(const Batch& batch);

    /// The numeric address that this host uses to reach the store: the right one to give to other workers.
    [[nodiscard]] std::string local_address() const { return stream_.local_address(); }
    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

private:
    Client(ClientStream stream, Endpoint endpoint, std::string who)
        : stream_(std::move(stream)), endpoint_(std::move(endpoint)), who_(std::move(who)) {}

    [[nodiscard]] Result<void> send(std::string_view request);
    [[nodiscard]] Result<std::int64_t> ask_number(std::string_view request);
    /// Ends a wait whose deadline has passed. True: the keys came at the last moment.
    [[nodiscard]] Result<bool> cancel_wait();
    [[nodiscard]] Result<Answer> receive(Batch::Answers answer);
    [[nodiscard]] Error late(std::span<const std::string> keys, Duration waited);
    /// "cannot <action> at <endpoint>: <cause>"; the connection is closed, for nobody knows where the stream stands.
    [[nodiscard]] Error give_up(std::string_view action, const Error& cause);

    ClientStream stream_;
    Endpoint endpoint_;
    std::string who_;  ///< empty, or ends in a blank
};

}  // namespace ddprun::store

#pragma once
// Links: the TCP connections of one rank to its counterparts on the other nodes, and exchanges over them: any number of
// messages to and from different peers at once, in both directions, so that two big messages never wait for each other.
// Where a peer has several sockets, large messages are spread over them (stripes.hpp).
// Whoever runs the group's operations owns it; interrupt() may come from any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/flow.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/stream.hpp"

namespace ddp::detail {

/// At most one message to and one from each peer per exchange. `depends`: whether the peer may have to wait for a third
/// before it can receive, or send, this one.
struct OutMessage {
    int rank = 0;
    std::span<const std::byte> bytes;
    bool depends = false;
    Owner owner = Owner::kSelf;
};
struct InMessage {
    int rank = 0;
    std::span<std::byte> bytes;
    bool depends = false;
};

class Links {
public:
    /// `node` ends our waits when a rank of our own node gives up, and hears from us what those of others say.
    Links(std::string group, std::int64_t generation, std::map<int, Link> links, Node& node);
    ~Links();

    /// Returns when everything is sent and received. Every message says to which step of which operation it belongs.
    /// Throws Mismatch naming both sides, PeerLost or Timeout naming the peers, a peer's own failure, or the node's;
    /// after that, call finish_messages().
    void exchange(const Operation& operation, std::uint32_t step, std::span<const OutMessage> out,
                  std::span<const InMessage> in);
    /// The same for the messages of a stream, whose peer number i is rank `peers[i]`.
    void exchange(const Operation& operation, std::span<const int> peers, Stream& stream) {
        begin(operation, peers);
        go_on(operation, stream);
    }
    /// The same for a stream that stops now and then: go_on() returns when it does, and when everything is done.
    void begin(const Operation& operation, std::span<const int> peers);
    void go_on(const Operation& operation, Stream& stream);

    /// Wakes an exchange that waits, so that it looks at the node's state.
    void interrupt() const;

    /// Sends the rest of what an exchange that did not come to its end has left half sent, for a moment at most: a
    /// goodbye can only follow a whole message. The exchange's memory must still be there.
    void finish_messages();

    /// Tells every peer why there will be no more messages: because of a failure, which takes a moment at most (if
    /// another rank has found it, in the words of that one), or because we leave in good order, which takes no time: a
    /// peer that does not read just sees the connection end.
    void say_goodbye(const Error& failure);
    void say_goodbye(const Absence& departure);

private:
    void begin(const Operation& operation);
    [[nodiscard]] Flow make_flow(const Operation& operation, int rank);
    void run(const Operation& operation, Stream* stream);
    void give(const Operation& operation, Flow& flow, std::uint32_t step, std::span<const std::byte> bytes,
              Owner owner) const;
    [[nodiscard]] bool send_some(const Operation& operation, Flow& flow, std::size_t peer, Stream* stream) const;
    [[nodiscard]] bool receive_some(const Operation& operation, Flow& flow, std::size_t peer, Stream* stream) const;
    void receive_on(const Operation& operation, Flow& flow, std::size_t socket) const;
    void wait(const Operation& operation, const Stream* stream) const;

    [[nodiscard]] ddprun::TimePoint last_moment() const;

    // What becomes of errors (links_failure.cpp).
    void check_late(const Operation& operation, ddprun::TimePoint limit, const Stream* stream) const;
    void check_header(const Operation& operation, Flow& flow) const;
    [[noreturn]] void peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const;
    [[noreturn]] void not_vouched_for(const Operation& operation, Flow& flow) const;
    void look_for_reason(const Operation& operation, Flow& flow) const;
    [[noreturn]] void raise_note(const Operation& operation, Flow& flow) const;
    void hear_better(const Operation& operation) const;
    void send_last_words(const FailureNote& note, ddprun::TimePoint deadline);

    const std::string group_;
    const std::int64_t generation_;
    std::map<int, Link> links_;
    Node& node_;
    const ddprun::Duration spinning_;        ///< how long to look before sleeping
    ddprun::UniqueFd interrupt_;             ///< eventfd
    std::uint64_t seq_ = ~std::uint64_t{0};  ///< of the operation in hand
    ddprun::TimePoint began_;                ///< when its first exchange did
    std::vector<Flow> flows_;  ///< of the last exchange, unless it came to its end; a stream's stay: it may go on
};

}  // namespace ddp::detail

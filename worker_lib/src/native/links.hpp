#pragma once
// Links: the TCP connections of one rank to its counterparts on the other nodes, and exchanges over them: any number of
// messages to and from different peers at once, in both directions, so that two big messages never wait for each other.
// The progress thread owns it; interrupt() may come from any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/node.hpp"

namespace ddp::detail {

/// At most one message to and one from each peer per exchange.
struct OutMessage {
    int rank = 0;
    std::span<const std::byte> bytes;
};
struct InMessage {
    int rank = 0;
    std::span<std::byte> bytes;
};

struct Link {
    ddprun::UniqueFd socket;
    std::string name;             ///< for errors: "rank 3 (host b, pid 71, 10.0.0.3)"
    bool sending_broken = false;  ///< a message was cut off: nothing sensible can follow
};

/// Before every message.
struct MessageHeader {
    static constexpr std::uint32_t kMagic = 0x64647031;             // "ddp1"
    static constexpr std::uint32_t kLastWords = ~std::uint32_t{0};  ///< as `step`: a FailureNote follows, then nothing

    std::uint32_t magic = kMagic;
    std::uint32_t step = 0;  ///< which exchange of the operation
    std::int64_t generation = 0;
    std::uint64_t payload_bytes = 0;
    Signature signature;
};
static_assert(sizeof(MessageHeader) == 80);

class Links {
public:
    /// `node` ends our waits when a rank of our own node gives up.
    Links(std::string group, std::int64_t generation, int own_rank, std::map<int, Link> links, const Node& node);
    ~Links();

    [[nodiscard]] bool empty() const { return links_.empty(); }

    /// Returns when everything is sent and received. Every message says to which step of which operation it belongs.
    /// Throws Mismatch naming both sides, PeerLost or Timeout naming the peers, a peer's own failure, or the node's;
    /// after that, call finish_messages().
    void exchange(const Operation& operation, std::uint32_t step, std::span<const OutMessage> out,
                  std::span<const InMessage> in);

    /// Wakes an exchange that waits, so that it looks at the node's state.
    void interrupt() const;

    /// Sends the rest of what an exchange that threw has left half sent, for a moment at most: a goodbye can only
    /// follow a whole message. The exchange's memory must still be there.
    void finish_messages();

    /// Tells every peer why there will be no more messages: because of a failure, which takes a moment at most, or
    /// because we leave in good order, which takes no time: a peer that does not read just sees the connection end.
    void say_goodbye(const Error& failure);
    void say_goodbye(const Absence& departure);

private:
    struct Flow;
    [[nodiscard]] std::vector<Flow> make_flows(const Operation& operation, std::uint32_t step,
                                               std::span<const OutMessage> out, std::span<const InMessage> in);
    void run(const Operation& operation, std::vector<Flow>& flows);
    void wait(const Operation& operation, const std::vector<Flow>& flows) const;
    [[noreturn]] void throw_late(const Operation& operation, const std::vector<Flow>& flows) const;
    void send_more(Flow& flow) const;
    void receive_more(const Operation& operation, Flow& flow) const;
    void check_header(const Operation& operation, const Flow& flow) const;
    [[noreturn]] void peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const;
    [[noreturn]] void raise_note(const Operation& operation, const Flow& flow) const;
    void send_last_words(const FailureNote& note, ddprun::TimePoint deadline);

    const std::string group_;
    const std::int64_t generation_;
    const int own_rank_;
    std::map<int, Link> links_;
    const Node& node_;
    ddprun::UniqueFd interrupt_;  ///< eventfd
    std::vector<Flow> cut_;       ///< of the exchange that threw
};

}  // namespace ddp::detail

#pragma once
// Links: the TCP connections of one rank to its counterparts on the other nodes, and exchanges of messages over them.
// An exchange sends to and receives from any number of peers at once, so that two large messages never wait for each
// other. If a peer has several sockets, large messages are spread over them (stripes.hpp). The backend owns it. The
// thread that runs the group's operations uses it; any thread may call interrupt().

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/exchange_errors.hpp"
#include "worker_lib/src/native/net/flow.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/native/node/node.hpp"

namespace ddp::detail {

/// A message of an exchange, which has at most one to and one from each peer. `depends`: the peer may have to wait for
/// a third rank before it can receive, or send, this one.
struct OutMessage {
    int rank = 0;
    std::span<const std::byte> bytes;
    bool depends = false;
    Owner owner = Owner::kSelf;
};
/// The same for a message that is received.
struct InMessage {
    int rank = 0;
    std::span<std::byte> bytes;
    bool depends = false;
};

class Links {
public:
    /// `node` ends waits here when a rank of the own node gives up, and gets the failures that other nodes report.
    Links(std::string group, std::int64_t generation, std::map<int, Link> links, Node& node);
    ~Links();

    /// Returns when everything is sent and received. Every message carries its operation and step. Throws Mismatch
    /// naming both sides, PeerLost or Timeout naming the peers, the failure that a peer reports, or the node's; after
    /// that, call finish_messages().
    void exchange(const Operation& operation, std::uint32_t step, std::span<const OutMessage> out,
                  std::span<const InMessage> in);
    /// Does the same for the messages of a stream, whose peer number i is rank `peers[i]`.
    void exchange(const Operation& operation, std::span<const int> peers, MessageStream& stream) {
        begin(operation, peers);
        go_on(operation, stream);
    }
    /// Do the same for a stream that stops at times: go_on() returns when it stops, and when everything is done.
    void begin(const Operation& operation, std::span<const int> peers);
    void go_on(const Operation& operation, MessageStream& stream);

    /// Wakes an exchange that waits, so that it looks at the state of the node.
    void interrupt() const;

    /// Returns the rank of the job whose connection has ended because its host did not answer; -1: none has.
    [[nodiscard]] int unreachable() const;

    /// Completes messages that a failed exchange has sent in part, for at most kFinalReportTimeout: a final report can
    /// only follow a whole message, so a peer whose message stays incomplete gets none. The memory of that exchange
    /// must still be valid.
    void finish_messages();

    /// Sends every peer the final report: a failure, as the rank that found it reports it, which takes at most
    /// kFinalReportTimeout; or the departure of this rank, which does not wait. A peer that does not read only sees the
    /// connection end.
    void report_end(const Failure& failure);
    void report_end(const Absence& departure);

private:
    void begin(const Operation& operation);
    [[nodiscard]] Flow make_flow(const Operation& operation, int rank);
    void run(const Operation& operation, MessageStream* stream);
    void give(const Operation& operation, Flow& flow, std::uint32_t step, std::span<const std::byte> bytes,
              Owner owner) const;
    [[nodiscard]] bool send_some(const Operation& operation, Flow& flow, std::size_t peer, MessageStream* stream) const;
    [[nodiscard]] bool receive_some(const Operation& operation, Flow& flow, std::size_t peer,
                                    MessageStream* stream) const;
    void receive_on(const Operation& operation, Flow& flow, std::size_t socket) const;
    void wait(const Operation& operation, const MessageStream* stream);
    void check_late(const Operation& operation, bool arrives, const MessageStream* stream);
    void note_unreachable(const Operation& operation, ddprun::TimePoint now);
    void report_waiting(const Operation& operation);

    void send_final_report(const FailureNote& note, ddprun::TimePoint deadline);

    const std::int64_t generation_;
    std::map<int, Link> links_;
    Node& node_;
    const ExchangeErrors errors_;
    const ddprun::Duration spinning_;        ///< time to poll before sleeping
    ddprun::UniqueFd interrupt_;             ///< eventfd
    std::uint64_t seq_ = ~std::uint64_t{0};  ///< of the current operation
    ddprun::TimePoint began_;                ///< begin of its first exchange
    int noted_unreachable_ = -1;             ///< RecordEntry::unreachable() of it
    ddprun::TimePoint unreachable_looked_;   ///< when note_unreachable() looked at the sockets last
    std::vector<Flow> flows_;                ///< of an exchange that has failed, or whose stream has stopped
};

}  // namespace ddp::detail

#pragma once
// ExchangeErrors: finds and throws the reason why an exchange of messages cannot go on: a late peer, a message that
// does not fit, a lost connection, or the failure that a peer or the node reports. Links owns it; the thread that runs
// the group's operations uses it.

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/net/flow.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

class ExchangeErrors {
public:
    /// `node` must outlive this.
    ExchangeErrors(std::string group, std::int64_t generation, Node& node);

    /// Throws Timeout if messages of `flows` are not complete and have been overdue for as long as the evidence
    /// requires. The rank with the best evidence gives up first and reports to the others: first a rank whose messages
    /// a host does not even acknowledge, then one that waits for a single peer, then one whose peer may itself wait for
    /// a third, then one whose peer has reported that it waits, or that would have to name several.
    /// now       time of the last look
    /// overdue   time from this rank's limit, which its pauses have moved, until `now`; not negative
    void check_late(const Operation& operation, const std::vector<Flow>& flows, ddprun::TimePoint now,
                    ddprun::Duration overdue, const MessageStream* stream) const;
    /// Throws if the header that was received does not belong to the expected message: Mismatch naming both sides, the
    /// failure of a final report, or System.
    void check_header(const Operation& operation, Flow& flow) const;
    /// Throws the reason why a connection is broken: the peer's final report, or the failure or death of another rank
    /// that reaches the node within a moment, or else PeerLost with `cause`.
    [[noreturn]] void peer_lost(const Operation& operation, Flow& flow, const std::string& cause) const;
    /// Throws as peer_lost(), because part of a payload may have been written after a rank of the peer's node gave up.
    [[noreturn]] void invalid_payload(const Operation& operation, Flow& flow) const;

private:
    [[noreturn]] void raise(Failure failure) const;
    void read_final_report(const Operation& operation, Flow& flow) const;
    [[noreturn]] void raise_note(const Operation& operation, Flow& flow) const;
    void await_better_reason(const Operation& operation) const;

    const std::string group_;
    const std::int64_t generation_;
    Node& node_;
};

}  // namespace ddp::detail

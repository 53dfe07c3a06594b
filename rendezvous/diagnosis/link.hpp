#pragma once
// Diagnoses a network that is cut between two nodes which both still reach the daemon: a worker on one of them gets no
// answer from the host of a worker on the other one, not even an acknowledgement of its kernel. No rank is a culprit.
// Pure.

#include <vector>

#include "rendezvous/diagnosis/stall.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::diagnosis {

/// For this long at least worker_lib waits for a host that does not answer (kUnreachableTolerated in its
/// native/protocol/deadlines.hpp; a test compares).
inline constexpr std::chrono::seconds kLinkTolerated{15};

/// Returns "LINK node n1 and node n2 cannot reach each other: …", a verdict of kind kLink, if an operation that is in
/// progress shows that. kNone: none does, or the agent of the other node has not answered, so that its host may be
/// down, or the process of the other rank is stopped. `among`: the only links that count; null: any.
[[nodiscard]] StallVerdict diagnose_link(const std::vector<RankRecord>& records,
                                         const std::vector<CutLink>* among = nullptr);

/// Returns whether all these links have a node in common; false if one of the two is empty.
[[nodiscard]] bool share_a_node(const std::vector<CutLink>& some, const std::vector<CutLink>& others);

/// Returns whether an operation that is in progress shows that a host does not answer, cut link or not.
[[nodiscard]] bool shows_unreachable(const std::vector<RankRecord>& records);

/// Returns the verdict of diagnose_link() as of the moment before the operations failed that `failed` depends on.
/// `records`: read after the end of that worker. kNone also if the worker did not fail because of another rank or a
/// deadline.
[[nodiscard]] StallVerdict diagnose_link_before(const std::vector<RankRecord>& records, const FailureReport& failed);

}  // namespace ddprun::diagnosis

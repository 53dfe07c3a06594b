#pragma once
// FailureDetector: finds out that a work cannot be done any more: the group has failed, a peer that it needs is lost
// or has left, or its deadline has passed; and which ranks are the culprits. ProgressEngine owns it, and acts on what
// it finds. All calls are made under P2p's lock.

#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail::p2p {

/// The end of all sends and receives.
struct P2pEnd {
    Failure why;
    std::shared_ptr<P2pWork> about = nullptr;  ///< the work that `why` names; null: it names none of ours
    bool is_ours = false;                      ///< found here: the group does not know of it
};

class FailureDetector {
public:
    FailureDetector(const P2pSetup& setup, Peers& peers, WorkTable& works)
        : setup_(setup), peers_(peers), works_(works) {}

    /// Looks at all connections, also while nothing is under way: one that is being made sends its greeting. Throws
    /// Error{System}.
    void look_at_connections();
    /// Looks at all peers and all works in flight. Throws as Peer::progress().
    [[nodiscard]] std::optional<P2pEnd> find_failure();

private:
    void look_at_neighbours(ddprun::TimePoint now);
    void ask_remotes(ddprun::TimePoint now);
    [[nodiscard]] std::optional<P2pEnd> find_lost();
    [[nodiscard]] std::optional<P2pEnd> end_without(int rank, const Failure& why) const;
    [[nodiscard]] std::optional<P2pEnd> find_overdue();
    [[nodiscard]] P2pEnd overdue(const std::shared_ptr<P2pWork>& work, const std::vector<int>& missing,
                                 const std::vector<int>& silent);
    [[nodiscard]] bool drain(Peer& peer);
    [[nodiscard]] bool is_listening(int rank) const;

    const P2pSetup& setup_;
    Peers& peers_;
    WorkTable& works_;
    ddprun::TimePoint looked_ = ddprun::Clock::now();  ///< at the neighbours, the last time
};

}  // namespace ddp::detail::p2p

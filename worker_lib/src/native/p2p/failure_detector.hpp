#pragma once
// FailureDetector: finds the works that cannot complete any more, because the group has failed, a peer that they need
// is lost or has left, or their deadline has passed. It names the culprits. ProgressEngine owns it, and handles the
// failures. All calls are made under P2p's lock.

#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"

namespace ddp::detail::p2p {

/// The end of all sends and receives.
struct Failure {
    Error error;
    std::shared_ptr<P2pWork> about;  ///< the work that `error` names; null: it names none of ours
    bool is_ours = false;            ///< found here: the group does not know of it
};

class FailureDetector {
public:
    FailureDetector(const P2pSetup& setup, Peers& peers, WorkTable& works)
        : setup_(setup), peers_(peers), works_(works) {}

    /// Looks at all connections, also while no work is in flight, because one that is being made has to send its
    /// greeting. Throws Error{System}.
    void look_at_connections();
    /// Looks at all peers and all works in flight. Throws as Peer::progress().
    [[nodiscard]] std::optional<Failure> find_failure();

private:
    void look_at_neighbours(ddprun::TimePoint now);
    void ask_remotes(ddprun::TimePoint now);
    [[nodiscard]] std::optional<Failure> find_lost();
    [[nodiscard]] std::optional<Failure> failure_without(int rank, const Error& why) const;
    [[nodiscard]] std::optional<Failure> find_overdue();
    [[nodiscard]] Failure overdue(const std::shared_ptr<P2pWork>& work, const std::vector<int>& missing,
                                  const std::vector<int>& silent);
    [[nodiscard]] bool drain(Peer& peer);
    [[nodiscard]] bool is_listening(int rank) const;

    const P2pSetup& setup_;
    Peers& peers_;
    WorkTable& works_;
    ddprun::TimePoint looked_ = ddprun::Clock::now();  ///< time of the last look at the neighbours
};

}  // namespace ddp::detail::p2p

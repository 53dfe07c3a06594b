#pragma once
// FailureDetector: finds the works that cannot complete any more, because the group has failed, a peer that they need
// is lost or has left, or their deadline has passed. It names the culprits. ProgressEngine owns it, and handles the
// failures.

#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"
#include "worker_lib/src/native/protocol/pauses.hpp"
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

    /// Looks at all connections, also while no work is in flight, because one that is being made has to send its
    /// greeting. Throws Error{System}.
    void look_at_connections() REQUIRES(kRunning);
    /// Looks at all peers and all works in flight. While there are any, call it much more often than every
    /// kSilence / 2. Throws as Peer::progress().
    [[nodiscard]] std::optional<P2pEnd> find_failure() REQUIRES(kRunning);
    /// Call it when no work is in flight: then find_failure() is not called for a while.
    void rest() REQUIRES(kRunning) { is_resting_ = true; }

private:
    void note_pause(ddprun::TimePoint now) REQUIRES(kRunning);
    [[nodiscard]] ddprun::TimePoint limit(const P2pWork& work, ddprun::Duration extra = {}) const REQUIRES(kRunning);
    void look_at_neighbours(ddprun::TimePoint now) REQUIRES(kRunning);
    void note_unreachable(ddprun::TimePoint now) REQUIRES(kRunning);
    void ask_remotes(ddprun::TimePoint now) REQUIRES(kRunning);
    [[nodiscard]] std::optional<P2pEnd> find_lost(ddprun::TimePoint now) REQUIRES(kRunning);
    [[nodiscard]] std::optional<P2pEnd> end_without(int rank, const Failure& why) const REQUIRES(kRunning);
    [[nodiscard]] std::optional<P2pEnd> find_overdue(ddprun::TimePoint now) REQUIRES(kRunning);
    [[nodiscard]] P2pEnd overdue(const std::shared_ptr<P2pWork>& work, const std::vector<int>& missing,
                                 const std::vector<int>& silent) REQUIRES(kRunning);
    [[nodiscard]] bool drain(Peer& peer) REQUIRES(kRunning);
    [[nodiscard]] bool is_listening(int rank, ddprun::TimePoint now) const REQUIRES(kRunning);

    const P2pSetup& setup_;
    Peers& peers_;
    WorkTable& works_;
    Pauses pauses_ GUARDED_BY(kRunning);
    bool is_resting_ GUARDED_BY(kRunning) = true;
    bool noted_unreachable_ GUARDED_BY(kRunning) = false;
    ddprun::TimePoint hosts_looked_at_ GUARDED_BY(kRunning);  ///< by note_unreachable()
};

}  // namespace ddp::detail::p2p

#pragma once
// ProgressEngine: moves the messages of all works of a rank, pass by pass, and ends them all when one has failed. P2p
// owns it; the thread that makes progress calls it (see Scheduler).

#include <atomic>
#include <memory>
#include <optional>

#include "worker_lib/src/native/p2p/failure_detector.hpp"
#include "worker_lib/src/native/p2p/peers.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/p2p/sleeper.hpp"
#include "worker_lib/src/native/p2p/work_table.hpp"

namespace ddp::detail::p2p {

/// Returns why works end that are left when a P2p ends without a failure of the group.
[[nodiscard]] Failure group_is_gone();

class ProgressEngine {
public:
    ProgressEngine(const P2pSetup& setup, Peers& peers, WorkTable& works, const Sleeper& sleeper,
                   const Activity& activity)
        : setup_(setup),
          peers_(peers),
          works_(works),
          sleeper_(sleeper),
          activity_(activity),
          detector_(setup, peers, works) {}

    /// Moves as much as can be moved now, about kMaxPerPass per peer and direction. Returns whether anything moved;
    /// false also when the group has failed. Any exception becomes the group's failure.
    [[nodiscard]] bool pass() REQUIRES(kRunning);
    /// Chooses whether pass() looks at the connections, too: each look is a system call.
    void set_network(bool included) REQUIRES(kRunning) { with_network_ = included; }
    /// Looks for failures of the group, lost peers and deadlines that have passed.
    void check_for_failures() REQUIRES(kRunning);
    /// Returns whether a work is in flight, or a peer waits for a frame that there was no room for.
    [[nodiscard]] bool busy() const REQUIRES(kRunning) { return !works_.in_flight().empty() || peers_.has_to_send(); }
    [[nodiscard]] bool failed() const REQUIRES(kRunning) { return failure_.has_value(); }
    /// Fails all works. A failure that was found here is reported to the group.
    void fail(const P2pEnd& end) REQUIRES(kRunning);
    /// Sends the frames that peers still need, reports `final_report` to other nodes, and fails the works in flight.
    void stop(const Failure& final_report, bool failed) REQUIRES(kRunning);

private:
    [[nodiscard]] bool pass_or_throw() REQUIRES(kRunning);
    [[nodiscard]] bool move_all() REQUIRES(kRunning);
    void take_submitted() REQUIRES(kRunning);
    void fail_by_exception() REQUIRES(kRunning);
    void report_end(const Failure& why, bool failed) REQUIRES(kRunning);

    const P2pSetup& setup_;
    Peers& peers_;
    WorkTable& works_;
    const Sleeper& sleeper_;
    const Activity& activity_;
    FailureDetector detector_;
    bool with_network_ GUARDED_BY(kRunning) = true;
    std::optional<Failure> failure_ GUARDED_BY(kRunning);
    bool reported_end_ GUARDED_BY(kRunning) = false;
};

}  // namespace ddp::detail::p2p

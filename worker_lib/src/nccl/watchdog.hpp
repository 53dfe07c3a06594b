#pragma once
// Watchdog: the thread that follows the operations of one group on the device. It completes their works in order,
// notices deadlines and NCCL's background errors, and is the only one that gives the communicator up.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/nccl_work.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/waiting.hpp"

namespace ddp::detail {

/// What ends a call that waits in NCCL for the peers to make it too.
inline constexpr std::string_view kStillConnecting =
    "NCCL was still connecting to its peers at its deadline: have all ranks made this call?";

/// Why a group can do no more work.
struct Failure {
    ErrorCode code = ErrorCode::System;
    std::string text;           ///< names the group, not the operation
    std::string operation;      ///< the one that met it, described; empty: none in particular
    std::vector<int> culprits;  ///< ranks of the group, when known
};

class Watchdog {
public:
    Watchdog(std::string place, const Peers& peers, std::shared_ptr<GroupDevice> device, Communicator& communicator,
             const NcclLimits& limits);
    ~Watchdog() { end(); }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    /// What is still in flight fails with Aborted; bounded by the limits, and by what callbacks do. Not from one of
    /// them.
    void end();

    /// While it lives its maker is in the call of that work. Where that may not come back by itself
    /// (Communicator::may_block) the group fails if it has not at the work's deadline. One at a time.
    class Expectation {
    public:
        Expectation(Watchdog& watchdog, std::shared_ptr<NcclWork> work);
        ~Expectation() { watchdog_.expect(nullptr); }
        Expectation(const Expectation&) = delete;
        Expectation& operator=(const Expectation&) = delete;

    private:
        Watchdog& watchdog_;
    };
    /// Takes an operation over. After a failure its work fails too.
    void watch(std::shared_ptr<NcclWork> work);
    /// Fails everything in flight and to come. Only the first failure counts. Returns at once.
    void fail(Failure failure);
    /// Of a group that does no more work. Any thread.
    [[nodiscard]] std::optional<Failure> failure() const;

private:
    using Lock = std::unique_lock<std::mutex>;
    /// A work that is over, and its error or none.
    struct Ended {
        std::shared_ptr<NcclWork> work;
        std::exception_ptr error;
    };
    void run();
    void run_callbacks();
    void expect(std::shared_ptr<NcclWork> work);
    /// Nothing to do is left, and no callback can bring more.
    [[nodiscard]] bool is_over() const { return stop_ && ended_.empty() && !in_callback_; }
    [[nodiscard]] bool has_work() const { return !pending_.empty() || (failure_ && !aborted_); }
    void await_work(Lock& lock);
    [[nodiscard]] bool is_expected_late() const;
    void note(Failure failure);
    void follow_first(Lock& lock, Pauses& pauses);
    void complete(Lock& lock, Ended ended);
    void complete(const Ended& ended);
    void give_up(Lock& lock);
    void abort_communicator(Lock& lock);
    [[nodiscard]] std::optional<Failure> examine(const NcclWork& first, cudaError_t state);
    [[nodiscard]] std::optional<Failure> missed_deadline() const;
    [[nodiscard]] std::exception_ptr error_for(const NcclWork& work) const;

    const std::string place_;  // as place_of() names it
    const Peers& peers_;
    const std::shared_ptr<GroupDevice> device_;
    Communicator& communicator_;
    const NcclLimits limits_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<NcclWork>> pending_;  // in the order of their launch; only run() removes
    std::shared_ptr<NcclWork> expected_;
    std::optional<Failure> failure_;
    bool aborted_ = false;  // the communicator has been given up
    bool stop_ = false;
    std::deque<Ended> ended_;  // to be completed by callbacks_
    bool in_callback_ = false;
    bool over_ = false;  // run() has ended
    std::thread thread_;
    std::thread callbacks_;  // none unless the communicator may block
};

}  // namespace ddp::detail

#pragma once
// Watchdog: follows the operations of one group on the device. Its thread completes their works in order, notices
// deadlines and NCCL's background errors, and is the only one that gives the communicator up.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "worker_lib/src/nccl/callback_thread.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/waiting.hpp"
#include "worker_lib/src/nccl/work.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

/// The error of a call whose peers did not make it too.
inline constexpr std::string_view kStillConnecting =
    "NCCL was still connecting to its peers at its deadline: have all ranks made this call?";

class Watchdog {
public:
    /// own_rank   as own_rank_text() names it
    Watchdog(std::string own_rank, const Peers& peers, std::shared_ptr<GroupDevice> device, Communicator& communicator,
             const NcclLimits& limits);
    ~Watchdog() { end(); }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    /// Fails what is in flight with Aborted and ends both threads. Bounded by the limits and by the callbacks' own
    /// waits. Must not be called from a callback.
    void end();

    /// Exists while its maker is in the call of a work. Where that call may not return by itself
    /// (Communicator::may_block), the group fails if it has not returned at the work's deadline. One at a time.
    class Expectation {
    public:
        Expectation(Watchdog& watchdog, std::shared_ptr<NcclWork> work);
        ~Expectation() { watchdog_.expect(nullptr); }
        Expectation(const Expectation&) = delete;
        Expectation& operator=(const Expectation&) = delete;

    private:
        Watchdog& watchdog_;
    };
    /// Takes over a work that has been launched. After a failure the work fails too.
    void watch(std::shared_ptr<NcclWork> work);
    /// Fails everything in flight and to come. Only the first failure counts; its cause names the group. Returns at
    /// once. Any thread.
    void fail(Failure failure);
    /// Returns why the group can do no more work; nothing: it can. Any thread.
    [[nodiscard]] std::optional<Failure> failure() const;

private:
    using Lock = std::unique_lock<std::mutex>;

    void run();
    void expect(std::shared_ptr<NcclWork> work);
    /// Returns whether nothing is left to do, and no callback can bring more.
    [[nodiscard]] bool is_over() const { return stop_ && (!callbacks_ || callbacks_->is_idle()); }
    [[nodiscard]] bool has_work() const { return !pending_.empty() || (failure_ && !aborted_); }
    void await_work(Lock& lock);
    [[nodiscard]] bool is_expected_late() const;
    void note(Failure failure);
    void follow_first(Lock& lock, Pauses& pauses);
    void complete(Lock& lock, const EndedWork& ended);
    void complete(const EndedWork& ended);
    void give_up(Lock& lock);
    void abort_communicator(Lock& lock);
    [[nodiscard]] std::optional<Failure> examine(const NcclWork& first, cudaError_t state);
    [[nodiscard]] std::optional<Failure> missed_deadline() const;
    [[nodiscard]] std::exception_ptr error_for(const NcclWork& work) const;

    const std::string own_rank_;
    const Peers& peers_;
    const std::shared_ptr<GroupDevice> device_;
    Communicator& communicator_;
    const NcclLimits limits_;

    mutable std::mutex mutex_;  // taken before CallbackThread's, never after
    std::condition_variable changed_;
    std::deque<std::shared_ptr<NcclWork>> pending_;  // in the order of their launch; only run() removes
    std::shared_ptr<NcclWork> expected_;
    std::optional<Failure> failure_;
    bool aborted_ = false;  // the communicator has been given up
    bool stop_ = false;
    std::optional<CallbackThread> callbacks_;  // only where the communicator may block
    std::thread thread_;
};

}  // namespace ddp::detail

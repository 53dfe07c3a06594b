#pragma once
// Watchdog: the thread that follows the operations of one group on the device. It completes their works in order,
// notices deadlines and NCCL's background errors, and is the only one that gives the communicator up.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/nccl_work.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/waiting.hpp"

namespace ddp::detail {

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
    /// What is still in flight fails with Aborted; bounded by the limits.
    ~Watchdog();

    /// Takes an operation over. After a failure its work fails too.
    void watch(std::shared_ptr<NcclWork> work);
    /// Fails everything in flight and to come. Only the first failure counts. Returns at once.
    void fail(Failure failure);
    /// Of a group that does no more work. Any thread.
    [[nodiscard]] std::optional<Failure> failure() const;

private:
    using Lock = std::unique_lock<std::mutex>;
    void run();
    void note(Failure failure);
    void follow_first(Lock& lock, Pauses& pauses);
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
    std::optional<Failure> failure_;
    bool aborted_ = false;  // the communicator has been given up
    bool stop_ = false;
    std::thread thread_;  // the last member: it uses all others
};

}  // namespace ddp::detail

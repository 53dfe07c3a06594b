#pragma once
// GroupWatch: the operations of one group in flight, its failure, and the rules by which it fails: deadlines, lost
// peers, NCCL's errors, and failures of other groups of its device. Makes no call of CUDA or NCCL. The mutex of the
// DeviceQueue that owns it guards it.

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/work.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

/// The error of a call whose peers did not make it too.
inline constexpr std::string_view kStillConnecting = "NCCL was still connecting to its peers at its deadline";

/// From the first look at something late to the second: the process may have been paused, and another thread is about
/// to find it done.
inline constexpr auto kSecondLook = std::chrono::milliseconds(20);

/// Adds what to look at next to the text of an operation's timeout whose culprit is not known.
[[nodiscard]] std::string with_next_step(const Failure& failure, std::string text);

class GroupWatch {
public:
    using Works = std::deque<std::shared_ptr<NcclWork>>;

    /// own_rank   as own_rank_text() names it
    /// The peers outlive it.
    GroupWatch(std::string own_rank, const Peers& peers, const NcclLimits& limits)
        : own_rank_(std::move(own_rank)), peers_(peers), limits_(limits) {}

    /// Returns the operations that were submitted and have not ended, in the order of their calls.
    [[nodiscard]] const Works& works() const { return works_; }
    void add(std::shared_ptr<NcclWork> work) { works_.push_back(std::move(work)); }
    /// Removes the oldest operation, which has ended well.
    void pop();
    [[nodiscard]] Works take_all() { return std::exchange(works_, {}); }

    [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
    /// Keeps the first failure, with its cause if that is known.
    void fail(Failure failure);
    /// Adds text to the failure.
    void add_to_cause(std::string_view text) { failure_->cause += text; }
    /// Takes note of an error that NCCL has met in the background. The group fails by it when the peer that may be the
    /// cause has had time to end.
    void note_error(Failure error);
    /// Takes note that another group of this device has failed, with lost peers or by a deadline. If a lost rank is one
    /// of this group, this group fails as soon as it has no operation in flight that can do without. Otherwise, if that
    /// group had operations in flight, it fails if the oldest of its own now in flight, once the device has come to it,
    /// does not end within limits.shared_timeout.
    void hear(const GroupWatch& failed, ddprun::TimePoint now);
    /// Returns the reason why the group has to fail now, if there is one.
    /// connecting   the operation of any group that NCCL has not launched yet and that holds the queue; null: none
    [[nodiscard]] std::optional<Failure> find_failure(ddprun::TimePoint now, const NcclWork* connecting);
    /// Returns when to call find_failure() again; nothing: when there is something new.
    [[nodiscard]] std::optional<ddprun::TimePoint> next_look(ddprun::TimePoint now) const;
    /// Returns the error of an operation: it names the operation, then the one that failed.
    [[nodiscard]] std::exception_ptr error_for(const NcclWork& work) const;

private:
    [[nodiscard]] std::optional<Failure> missed_deadline(ddprun::TimePoint now, const NcclWork* connecting);
    [[nodiscard]] std::optional<Failure> missed_peer(ddprun::TimePoint now, const NcclWork* connecting);
    [[nodiscard]] std::optional<Failure> shared_failure(ddprun::TimePoint now, const NcclWork* connecting);
    [[nodiscard]] bool needs_lost_peer(const NcclWork& work) const;

    const std::string own_rank_;
    const Peers& peers_;
    const NcclLimits& limits_;
    Works works_;
    std::optional<Failure> failure_;
    const NcclWork* overdue_ = nullptr;  // the operation that was late at the last look
    ddprun::TimePoint overdue_since_;
    ddprun::TimePoint next_peer_look_;
    const NcclWork* held_up_ = nullptr;  // the oldest operation, if it has begun and needs a lost peer
    ddprun::TimePoint held_up_since_;
    std::optional<Error> losses_;   // the lost peers, as of the first half of loss_timeout since then
    std::optional<Failure> error_;  // of NCCL
    ddprun::TimePoint error_since_;
    std::optional<Failure> loss_;   // that another group has met, of ranks of this one
    std::optional<Failure> heard_;  // of another group, without lost ranks, until an operation has ended after it
    ddprun::TimePoint heard_since_;
    std::optional<ddprun::TimePoint> heard_until_;  // for the oldest operation, once it has begun
};

}  // namespace ddp::detail

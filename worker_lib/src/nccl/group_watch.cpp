#include "worker_lib/src/nccl/group_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/text/number.hpp"

namespace ddp::detail {
namespace {

using ddprun::TimePoint;

/// The device comes to an operation that has waited for a failed group within this time after the failure, however long
/// an abort may take.
constexpr auto kVictimTime = std::chrono::seconds(1);

Failure failure_of(const NcclWork& work, ErrorCode code, std::string text) {
    return {.code = code, .operation = work.text(), .cause = std::move(text), .names_group = true};
}

bool is_in_progress(const NcclWork& work, const NcclWork* connecting) {
    return work.has_begun() || &work == connecting;
}

}  // namespace

std::string with_next_step(const Failure& failure, std::string text) {
    if (failure.code != ErrorCode::Timeout || failure.operation.empty() || !failure.culprits.empty()) return text;
    return text +
           ". Some rank has not called it, calls another operation, or its GPU does not get that far: see a line "
           "LAGGING or MISMATCH of ddprun, `nvidia-smi`, and `dmesg | grep Xid`";
}

void GroupWatch::pop() {
    works_.pop_front();
    overdue_ = held_up_ = nullptr;
    heard_.reset();
}

void GroupWatch::fail(Failure failure) {
    if (failure_) return;
    failure_ = std::move(failure);
    // The reason was given to abort(), or the culprits are known.
    if (failure_->code == ErrorCode::Aborted || !failure_->culprits.empty()) return;
    // Lost peers are the cause, whatever CUDA or NCCL reported.
    const auto losses = peers_.losses();
    if (!losses) return;
    failure_->code = ErrorCode::PeerLost;
    failure_->cause += fmt::format("; {}", losses->what());
    failure_->culprits = losses->culprits();
}

void GroupWatch::note_error(Failure error) {
    if (error_) return;
    error_ = std::move(error);
    error_since_ = ddprun::Clock::now();
}

void GroupWatch::hear(const GroupWatch& failed, TimePoint now) {
    const Failure& failure = *failed.failure_;
    Failure shared = failure;
    shared.culprits = peers_.ranks_here(failure.culprits, failed.peers_);
    shared.operation.clear();
    shared.cause =
        fmt::format("{}: another group of this device has failed: {}: {}", own_rank_, failure.operation, failure.cause);
    if (!shared.culprits.empty()) {
        if (!loss_) loss_ = std::move(shared);
    } else if (!failed.works_.empty() && !works_.empty() && !heard_) {
        heard_ = std::move(shared);
        heard_since_ = now;
        heard_until_.reset();
    }
}

std::optional<Failure> GroupWatch::find_failure(TimePoint now, const NcclWork* connecting) {
    if (failure_) return std::nullopt;
    if (loss_ && (works_.empty() || needs_lost_peer(*works_.front()))) return loss_;
    if (auto found = missed_deadline(now, connecting)) return found;
    if (auto found = missed_peer(now, connecting)) return found;
    const auto no_time = ddprun::Duration::zero();
    if (error_ && (now - error_since_ >= kEndingTime || !peers_.watches_any() || peers_.await_loss(no_time)))
        return error_;
    return shared_failure(now, connecting);
}

std::optional<TimePoint> GroupWatch::next_look(TimePoint now) const {
    if (works_.empty() || failure_) return std::nullopt;
    if (overdue_ != nullptr || error_ || heard_) return now + kSecondLook;
    TimePoint next = now + kLookInterval;
    for (const auto& work : works_) next = std::min(next, work->deadline());
    return next;
}

/// Looks at all operations, since a later one may have the earlier deadline.
std::optional<Failure> GroupWatch::missed_deadline(TimePoint now, const NcclWork* connecting) {
    const auto late = std::ranges::find_if(works_, [&](const auto& work) { return work->deadline() <= now; });
    if (late == works_.end()) return std::nullopt;
    const NcclWork& work = **late;
    if (std::exchange(overdue_, &work) != &work) overdue_since_ = now;
    if (now - overdue_since_ < kSecondLook) return std::nullopt;
    if (&work == connecting)
        return failure_of(work, ErrorCode::Timeout, fmt::format("{}: {}", own_rank_, kStillConnecting));
    if (!work.launched() && connecting != nullptr) {
        return failure_of(work, ErrorCode::Timeout,
                          fmt::format("{}: not launched at its deadline, behind {} of group '{}', which NCCL is still "
                                      "connecting to its peers",
                                      own_rank_, connecting->text(), connecting->owner().group));
    }
    std::string text = fmt::format("{}: not done on the device at its deadline", own_rank_);
    if (*late != works_.front()) text += "; still running is " + works_.front()->text();
    return failure_of(work, ErrorCode::Timeout, std::move(text));
}

/// Returns the failure of the oldest operation if it needs a rank whose process has ended, and has not ended by itself
/// in the time for that, which begins when the device has come to it.
std::optional<Failure> GroupWatch::missed_peer(TimePoint now, const NcclWork* connecting) {
    if (works_.empty() || now < next_peer_look_) return std::nullopt;
    const NcclWork& first = *works_.front();
    if (!is_in_progress(first, connecting)) return std::nullopt;
    next_peer_look_ = now + kLookInterval;
    if (!peers_.await_loss(ddprun::Duration::zero()) || !needs_lost_peer(first)) return std::nullopt;
    const bool is_new = std::exchange(held_up_, &first) != &first;
    if (is_new) held_up_since_ = now;
    // Ranks that end later may have ended by this failure: they see it within the same time.
    if (is_new || now - held_up_since_ < limits_.loss_timeout / 2) losses_ = peers_.losses();
    if (now - held_up_since_ < limits_.loss_timeout || !losses_) return std::nullopt;
    Failure failure = failure_of(first, ErrorCode::PeerLost,
                                 fmt::format("{}: not done {} after a rank was lost; {}", own_rank_,
                                             ddprun::rounded_seconds_text(limits_.loss_timeout), losses_->what()));
    failure.culprits = losses_->culprits();
    return failure;
}

/// Returns the failure of another group if the oldest operation does not end either. One to which the device has not
/// come may wait for that group, whose abort lets it go on; what begins later than that is not its victim.
std::optional<Failure> GroupWatch::shared_failure(TimePoint now, const NcclWork* connecting) {
    if (!heard_ || works_.empty()) return std::nullopt;
    if (!is_in_progress(*works_.front(), connecting)) {
        if (now - heard_since_ > kVictimTime) heard_.reset();
        return std::nullopt;
    }
    if (!heard_until_) heard_until_ = now + limits_.shared_timeout;
    return now < *heard_until_ ? std::nullopt : heard_;
}

/// A collective needs all ranks, a batch of messages only those that it names. Precondition: a rank is lost.
bool GroupWatch::needs_lost_peer(const NcclWork& work) const {
    const auto* const batch = std::get_if<TransferList>(&work.task());
    const auto is_lost = [&](int rank) {
        return (loss_ && std::ranges::find(loss_->culprits, rank) != loss_->culprits.end()) ||
               peers_.loss_of(rank).has_value();
    };
    return batch == nullptr ||
           std::ranges::any_of(batch->transfers, [&](const Transfer& message) { return is_lost(message.peer); });
}

std::exception_ptr GroupWatch::error_for(const NcclWork& work) const {
    const std::string own = work.text();
    const bool other = !failure_->operation.empty() && failure_->operation != own;
    const std::string text = other ? fmt::format("{}: given up after {}: {}", own, failure_->operation, failure_->cause)
                                   : fmt::format("{}: {}", own, failure_->cause);
    return std::make_exception_ptr(Error(failure_->code, with_next_step(*failure_, text), failure_->culprits));
}

}  // namespace ddp::detail

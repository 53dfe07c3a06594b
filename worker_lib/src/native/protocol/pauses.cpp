#include "worker_lib/src/native/protocol/pauses.hpp"

#include <algorithm>
#include <utility>

#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

namespace {

/// The shortest gap between two looks that is a pause, and the shortest pause that is a long one.
constexpr ddprun::Duration kPause = kSilence / 2;
constexpr ddprun::Duration kLongPause = kReporting;
/// Limits the memory, and how often a machine that is always short of cores can move a limit.
constexpr std::size_t kMaxPauses = 32;

}  // namespace

void Pauses::begin(ddprun::TimePoint called, ddprun::TimePoint now) {
    looked_ = std::max(looked_, called);
    if (now - looked_ > kPause) add({.began = looked_, .ended = now, .may_be_queue = true});
    looked_ = std::max(looked_, now);
}

ddprun::Duration Pauses::look(ddprun::TimePoint now) {
    const Pause pause{.began = std::exchange(looked_, now), .ended = now};
    const ddprun::Duration missed = pause.ended - pause.began - kPause;
    if (missed <= ddprun::Duration::zero()) return {};
    add(pause);
    return missed;
}

void Pauses::add(const Pause& pause) {
    if (pauses_.size() == kMaxPauses) pauses_.erase(pauses_.begin());
    pauses_.push_back(pause);
}

ddprun::TimePoint Pauses::moved(ddprun::TimePoint limit, ddprun::TimePoint called) const {
    for (const Pause& pause : pauses_) limit = pause.moved(limit, called);
    return limit;
}

ddprun::TimePoint Pauses::Pause::moved(ddprun::TimePoint limit, ddprun::TimePoint called) const {
    const ddprun::TimePoint from = std::max(called, began);
    if (from >= ended || limit <= from) return limit;
    ddprun::Duration left{};
    if (may_be_queue) {
        left = 2 * kReporting;
    } else if (ended - began >= kLongPause) {
        left = std::clamp<ddprun::Duration>(limit - from, kReporting, ended - began);
    }
    return std::max<ddprun::TimePoint>(limit, ended + left);
}

}  // namespace ddp::detail

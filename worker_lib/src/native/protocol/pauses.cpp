#include "worker_lib/src/native/protocol/pauses.hpp"

#include <algorithm>
#include <utility>

#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/util/paused_time.hpp"

namespace ddp::detail {

namespace {

/// The shortest gap between two looks that is a pause, and the shortest pause that is a long one.
constexpr ddprun::Duration kPause = kSilence / 2;
constexpr ddprun::Duration kLongPause = kReporting;
/// Limits the memory, and by how much a machine that is always short of cores can move a deadline.
constexpr std::size_t kMaxPauses = 32;

}  // namespace

void Pauses::begin(ddprun::TimePoint called, ddprun::TimePoint now) {
    if (!pauses_.empty()) std::erase_if(pauses_, [called](const Pause& pause) { return pause.ended <= called; });
    looked_ = std::max(looked_, called);
    if (now - looked_ > kPause) add({.began = looked_, .ended = now, .may_be_queue = true});
    looked_ = std::max(looked_, now);
}

ddprun::Duration Pauses::look(ddprun::TimePoint now) {
    const Pause pause{.began = std::exchange(looked_, now), .ended = now};
    if (pause.took() <= kPause) return ddprun::Duration::zero();
    add(pause);
    if (pause.is_long()) note_paused(pause.began, pause.ended);
    return pause.took() - kPause;
}

void Pauses::add(const Pause& pause) {
    if (pauses_.size() == kMaxPauses) pauses_.erase(std::ranges::min_element(pauses_, {}, &Pause::took));
    pauses_.push_back(pause);
}

ddprun::TimePoint Pauses::limit(ddprun::TimePoint deadline, ddprun::Duration extra, ddprun::TimePoint called) const {
    ddprun::TimePoint limit = extended(deadline, extra);
    for (const Pause& pause : pauses_) {
        limit = pause.moved(limit, called);
        if (!pause.is_long()) continue;
        // The limits of several ranks keep their distances, by which the one that sees the culprit is the first, also
        // if the deadline had passed before.
        const ddprun::TimePoint from = std::max(called, pause.began);
        const bool had_passed = deadline <= from && from < pause.ended && !pause.may_be_queue;
        deadline = had_passed ? extended(deadline, pause.ended - from) : pause.moved(deadline, called);
        limit = std::max(limit, extended(deadline, extra));
    }
    return limit;
}

bool Pauses::Pause::is_long() const { return may_be_queue || took() >= kLongPause; }

ddprun::TimePoint Pauses::Pause::moved(ddprun::TimePoint limit, ddprun::TimePoint called) const {
    const ddprun::TimePoint from = std::max(called, began);
    if (from >= ended || limit <= from) return limit;
    ddprun::Duration left{};
    if (may_be_queue) {
        left = 2 * kReporting;
    } else if (is_long()) {
        left = std::clamp<ddprun::Duration>(limit - from, kReporting, took());
    }
    return std::max<ddprun::TimePoint>(limit, ended + left);
}

}  // namespace ddp::detail

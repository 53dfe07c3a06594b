#include "worker_lib/src/native/protocol/pauses.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "worker_lib/src/native/protocol/deadlines.hpp"

namespace ddp::detail {

namespace {

constexpr int kMaxPauses = 20;
constexpr std::chrono::seconds kEpisode{60};

}  // namespace

ddprun::Duration Pauses::look(ddprun::TimePoint now) {
    const auto before = std::exchange(looked_, now);
    const auto missed = now - before - kSilence / 2;
    if (missed <= ddprun::Duration::zero()) return ddprun::Duration::zero();
    began_ = before;
    ended_ = now;
    missed_ = missed;
    counted_ = false;
    return missed;
}

ddprun::TimePoint Pauses::moved(ddprun::TimePoint limit, ddprun::Duration grace) {
    auto left = std::min(missed_, grace);
    if (limit > began_ && limit < ended_) left = std::max<ddprun::Duration>(left, limit - began_);
    const ddprun::TimePoint to = ended_ + left;
    if (to <= limit) return limit;
    if (!std::exchange(counted_, true)) {
        if (ended_ - episode_ > kEpisode) {
            episode_ = ended_;
            count_ = 0;
        }
        ++count_;
    }
    return count_ > kMaxPauses ? limit : to;
}

}  // namespace ddp::detail

#include "worker_lib/src/native/node/silence.hpp"

#include <algorithm>
#include <utility>

namespace ddp::detail {

void Silence::update(const NodeRanks& ranks, ddprun::TimePoint now, ddprun::Duration missed) {
    updated_ = now;
    counts_.resize(static_cast<std::size_t>(ranks.size()));
    since_.resize(counts_.size(), now);
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        since_[i] = std::min(since_[i] + missed, now);
        const auto count = ranks.control(static_cast<int>(i)).listening.load(std::memory_order_relaxed);
        if (std::exchange(counts_[i], count) != count) since_[i] = now;
    }
}

}  // namespace ddp::detail

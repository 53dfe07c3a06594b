#include "train/waiting.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace train {

Waiting::Clock::duration Waiting::total() const {
    return std::accumulate(steps_.begin(), steps_.end(), Clock::duration{});
}

double Waiting::exposed_ms(ddp::Context& context) const {
    std::vector<double> least;
    for (const auto& step : steps_) least.push_back(std::chrono::duration<double, std::milli>(step).count());
    context.world().all_reduce(least, ddp::ReduceOp::Min).wait();
    if (least.empty()) return 0;
    const auto middle = least.begin() + static_cast<std::ptrdiff_t>(least.size() / 2);
    std::ranges::nth_element(least, middle);
    return *middle;
}

}  // namespace train

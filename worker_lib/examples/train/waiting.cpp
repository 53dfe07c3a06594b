#include "train/waiting.hpp"

#include <algorithm>
#include <span>

namespace train {

void Waiting::step(std::chrono::nanoseconds so_far) {
    steps_ms_.push_back(std::chrono::duration<double, std::milli>(so_far - before_).count());
    before_ = so_far;
}

double Waiting::exposed_ms(ddp::Context& context) const {
    std::vector<double> least = steps_ms_;
    context.world().all_reduce(ddp::buffer(std::span(least)), ddp::ReduceOp::Min).wait();
    if (least.empty()) return 0;
    const auto middle = least.begin() + static_cast<std::ptrdiff_t>(least.size() / 2);
    std::ranges::nth_element(least, middle);
    return *middle;
}

}  // namespace train

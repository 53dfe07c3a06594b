#include "common/step_times.hpp"

#include <algorithm>

namespace ddprun {

StepTimes combined(const StepTimes& some, const StepTimes& more) {
    if (!some.latest) return more;
    if (!more.latest) return some;
    StepTimes both{std::max(some.latest, more.latest), std::max(some.first_at, more.first_at), {}};
    if (some.new_at && more.new_at) both.new_at = std::max(some.new_at, more.new_at);
    return both;
}

}  // namespace ddprun

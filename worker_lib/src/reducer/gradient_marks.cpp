#include "worker_lib/src/reducer/gradient_marks.hpp"

#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {

void GradientMarks::begin(bool sync) {
    sync_ = sync;
    for (std::size_t i = 0; i < params_.size(); ++i) {
        params_[i].uses_left = specs_[i].uses;
        params_[i].complete = false;
        if (!has_accumulated_) params_[i].used = false;
    }
    ready_order_.clear();
}

Fill GradientMarks::claim(std::size_t i, bool unused) {
    Param& param = params_[i];
    const int uses = specs_[i].uses;
    if (param.uses_left == 0) {
        refuse("parameter '" + specs_[i].name + "' was marked " +
               (uses == 1 ? "twice" : "more than " + std::to_string(uses) + " times") +
               " in one backward. Mark a gradient once, when it is complete. If layers share it, mark it after the "
               "last of them, or set ParamSpec::uses to their number");
    }
    if (unused && param.uses_left != uses) {
        refuse("parameter '" + specs_[i].name + "' was marked unused after it had been marked ready for " +
               std::to_string(uses - param.uses_left) + " of its " + std::to_string(uses) +
               " uses (ParamSpec::uses). Mark it ready once for each use, or unused if no layer uses it in this "
               "backward");
    }
    param.uses_left = unused ? 0 : param.uses_left - 1;
    if (!unused) param.used = true;
    return param.uses_left > 0 ? Fill::kNotYet : how_to_fill(unused);
}

std::vector<std::pair<std::size_t, Fill>> GradientMarks::claim_the_rest() {
    std::vector<std::pair<std::size_t, Fill>> rest;
    for (std::size_t i = 0; i < params_.size(); ++i) {
        const bool unused = params_[i].uses_left == specs_[i].uses;
        if (std::exchange(params_[i].uses_left, 0) > 0) rest.emplace_back(i, how_to_fill(unused));
    }
    return rest;
}

Fill GradientMarks::how_to_fill(bool unused) const {
    if (unused && !has_accumulated_) return Fill::kZero;  // else the sums of backwards without sync must survive
    return sync_ ? Fill::kCopy : Fill::kNothing;
}

std::string GradientMarks::missing() const {
    std::string names;
    for (std::size_t i = 0; i < params_.size(); ++i) {
        if (!params_[i].complete) names += (names.empty() ? "'" : ", '") + specs_[i].name + "'";
    }
    return names;
}

std::vector<bool> GradientMarks::used() const {
    std::vector<bool> used;
    for (const Param& param : params_) used.push_back(param.used);
    return used;
}

}  // namespace ddp::detail

#include "ddp/loss_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp {

LossScaler::LossScaler(LossScalerOptions options) : options_(options), state_{options.scale, 0} {
    const auto check = [](bool is_good, const char* name, double value, const char* expected) {
        if (!is_good) detail::refuse(fmt::format("LossScalerOptions::{} is {}: expected {}", name, value, expected));
    };
    check(options.scale > 0 && std::isfinite(options.scale), "scale", options.scale, "a positive number");
    check(options.growth >= 1 && std::isfinite(options.growth), "growth", options.growth, "at least 1");
    check(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff, "a number between 0 and 1");
    check(options.growth_interval > 0, "growth_interval", 0, "at least 1");
}

std::optional<double> LossScaler::step(double norm) {
    auto& [scale, good_steps] = state_;
    if (!std::isfinite(norm)) {
        scale = std::max(scale * options_.backoff, std::min(1.0, options_.scale));
        good_steps = 0;
        return std::nullopt;
    }
    const double factor = 1 / scale;
    if (++good_steps >= static_cast<double>(options_.growth_interval)) {
        if (const double grown = scale * options_.growth; std::isfinite(grown)) scale = grown;
        good_steps = 0;
    }
    return factor;
}

std::vector<NamedShard> LossScaler::state() { return {{"loss_scaler", {state_.size()}, 0, state_}}; }

}  // namespace ddp

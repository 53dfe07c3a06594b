#pragma once
// ScaleUp: what a running job does with nodes that could enlarge its world (--scale-up).

#include <array>
#include <string_view>
#include <utility>

namespace ddprun {

enum class ScaleUp {
    kImmediate,  ///< restarts its workers with them, when no more seem to come
    kAtRestart,  ///< takes them in when the workers are restarted for another reason
    kNever,      ///< does not grow beyond its first world; they take the places of lost nodes
};

/// Their names on the command line.
inline constexpr std::array<std::pair<ScaleUp, std::string_view>, 3> kScaleUpNames{
    {{ScaleUp::kImmediate, "immediate"}, {ScaleUp::kAtRestart, "at-restart"}, {ScaleUp::kNever, "never"}}};

[[nodiscard]] constexpr std::string_view to_string(ScaleUp scale_up) {
    return kScaleUpNames[static_cast<std::size_t>(scale_up)].second;
}

}  // namespace ddprun

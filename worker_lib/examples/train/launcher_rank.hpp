#pragma once
// This process's rank for messages before and after there is a ddp::Context, which is where everything else takes it.

#include <cstdlib>
#include <string>

namespace train {

/// RANK as the launcher set it; "0" without a launcher.
[[nodiscard]] inline std::string launcher_rank() {
    const char* const rank = std::getenv("RANK");
    return rank != nullptr ? rank : "0";
}

}  // namespace train

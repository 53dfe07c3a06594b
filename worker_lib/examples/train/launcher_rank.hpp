#pragma once
// launcher_rank: this process's rank, for messages before there is a ddp::Context and after it has ended.

#include <cstdlib>
#include <string>

namespace train {

/// Returns RANK as the launcher set it; "0" without a launcher.
[[nodiscard]] inline std::string launcher_rank() {
    const char* const rank = std::getenv("RANK");
    return rank != nullptr ? rank : "0";
}

}  // namespace train

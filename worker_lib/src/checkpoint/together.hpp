#pragma once
// Collective steps of a Checkpointer: what fails on one rank fails on all, with one error.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "ddp/process_group.hpp"

namespace ddp::detail {

// Long enough to move a large model to a slow disk. If a rank dies meanwhile, its connection shows that at once.
inline constexpr std::chrono::hours kDiskTimeout{4};

/// Runs `action` on this rank. If it has thrown on some ranks, every rank throws the error of the first of them: no
/// rank goes on after a save that failed, and none waits for a rank that has thrown. `label` names the call.
/// Collective.
void together(ProcessGroup& group, std::string_view label, const std::function<void()>& action);

/// Runs `action` on rank 0. Every rank returns its result or throws its error. Collective.
[[nodiscard]] std::string on_rank_0(ProcessGroup& group, std::string_view label,
                                    const std::function<std::string()>& action);

}  // namespace ddp::detail

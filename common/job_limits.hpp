#pragma once
// The limits of a job. The launcher and the daemon check options against them, and the coordinator checks joining
// nodes.

#include <cstddef>

namespace ddprun {

inline constexpr int kMaxNodes = 16'384;  ///< of a job, spares included; lost ones that come back may exceed it
inline constexpr int kMaxSlots = 4'096;   ///< workers on a node; kMaxNodes * kMaxSlots fits in an int
inline constexpr double kMaxSeconds = 365.0 * 24 * 3600;  ///< of any time in an option
inline constexpr std::size_t kMaxPrograms = 64;           ///< of a node
inline constexpr std::size_t kMaxRoles = kMaxNodes;       ///< of a job
inline constexpr std::size_t kMaxRunIdBytes =
    1'024;  ///< of --rdzv-id, and of a role; messages about the job have room for it

}  // namespace ddprun

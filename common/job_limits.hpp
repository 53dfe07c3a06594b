#pragma once
// The limits of a job. The launcher checks options against them, and the coordinator checks joining nodes.

namespace ddprun {

inline constexpr int kMaxNodes = 16'384;  ///< of a job, spares included; lost ones that come back may exceed it
inline constexpr int kMaxSlots = 4'096;   ///< workers on a node; kMaxNodes * kMaxSlots fits in an int

}  // namespace ddprun

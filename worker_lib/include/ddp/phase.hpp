#pragma once
// Phase and step: what this rank does, for the launcher. It shows the phase if the rank lags or dies, and knows by the
// steps how much of the job's time went into new ones.

#include <cstdint>
#include <string_view>

#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// Sets this rank's phase ("eval", "checkpoint", …) until the next call. Up to 64 bytes are shown. Costs a lock and a
/// few stores. Any thread. Does nothing when the launcher is not ddprun. Without a call, the phase of a rank in a scope
/// of ShardedParameters is "forward of unit 3 fc1.weight".
void set_phase(std::string_view text);

/// Notes that this rank begins a step of the training, numbered over the whole job: after a restart the numbers go on
/// from the checkpoint's. At the end ddprun prints how much of the time went into new steps, into steps made again, and
/// into the rest (goodput). At least one rank of each node calls it, and all that do count the same steps, in all
/// programs of the job. Costs a few nanoseconds. One thread at a time. Does nothing when the launcher is not ddprun.
void set_step(std::uint64_t step);

}  // namespace ddp

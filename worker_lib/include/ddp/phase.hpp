#pragma once
// set_phase: names what this rank does beside its collectives. The launcher shows it when the rank lags behind or dies.

#include <string_view>

namespace ddp {

/// Sets this rank's phase ("eval", "checkpoint", …) until the next call. Up to 64 bytes are shown. Costs a microsecond
/// at most. Any thread. Does nothing when the launcher is not ddprun.
void set_phase(std::string_view text);

}  // namespace ddp

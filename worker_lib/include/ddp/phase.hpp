#pragma once
// set_phase: names this rank's activity outside its collectives. The launcher shows it if the rank lags or dies.

#include <string_view>

namespace ddp {

/// Sets this rank's phase ("eval", "checkpoint", …) until the next call. Up to 64 bytes are shown. Costs a lock and a
/// few stores. Any thread. Does nothing when the launcher is not ddprun.
void set_phase(std::string_view text);

}  // namespace ddp

#pragma once
// What this rank is at, beside its collectives: shown by the launcher when the rank lags behind its peers, or has died.

#include <string_view>

namespace ddp {

/// "eval", "checkpoint", …: until the next call. Up to 64 bytes are shown. Costs a microsecond, at most; any thread.
/// Does nothing when the launcher is not ddprun.
void set_phase(std::string_view text);

}  // namespace ddp

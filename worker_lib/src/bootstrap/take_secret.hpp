#pragma once
// Takes the secret of this worker group from the descriptor that ddprun passed (docs/design/029).

#include <string>

namespace ddp::detail {

/// Returns the secret in the memory behind `descriptor`, and closes the descriptor. Returns an empty string and leaves
/// the descriptor alone if it is something else: `problem` says what is wrong.
[[nodiscard]] std::string read_secret(int descriptor, std::string& problem);

/// Returns the secret of this process, empty if ddprun passed none. Reads it with the first call, before which no other
/// thread changes the environment. Prints why a secret that was passed cannot be used.
[[nodiscard]] const std::string& process_secret();

}  // namespace ddp::detail

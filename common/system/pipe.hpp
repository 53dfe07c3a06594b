#pragma once
// Pipe: owns both ends of a pipe, which are close-on-exec.

#include <string_view>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun {

struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

/// Makes a pipe for the purpose `what`. Errors: "cannot make a pipe for a worker's output: Too many open files".
[[nodiscard]] Result<Pipe> make_pipe(std::string_view what);

}  // namespace ddprun

#pragma once
// Reads the environment, chooses the visible device and makes the pipes that a process passes on to its children.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/system/environment.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun {

/// Returns CUDA_VISIBLE_DEVICES, or another such list, of a worker that shall see one device: the entry of its local
/// rank in `visible`, the list of this process. nullopt: the list is too short.
[[nodiscard]] std::optional<std::string> visible_device(std::string_view visible, LocalRank local_rank);

/// Both ends of a pipe, which are close-on-exec.
struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

/// Makes a pipe for the purpose `what`. Errors: "cannot make a pipe for a worker's output: Too many open files".
[[nodiscard]] Result<Pipe> make_pipe(std::string_view what);

}  // namespace ddprun

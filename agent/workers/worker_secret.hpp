#pragma once
// Derives the secret of a worker group, and puts it into memory that a worker inherits (docs/design/029). Used by
// WorkerSpecBuilder. Any thread.

#include <string_view>

#include "common/error.hpp"
#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "common/worker_secret.hpp"

namespace ddprun::agent {

/// Returns the secret of a generation: the same on all nodes, as `worker_key` is (protocol::Welcome).
[[nodiscard]] worker_secret::Secret derive_worker_secret(std::string_view worker_key, Generation generation);

/// Returns sealed memory with `secret`. Errors: no descriptor or memory is left.
[[nodiscard]] Result<UniqueFd> make_secret_memory(const worker_secret::Secret& secret);

}  // namespace ddprun::agent

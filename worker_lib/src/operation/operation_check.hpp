#pragma once
// Checks the arguments of a collective, before any other rank learns of it.

#include <string>
#include <string_view>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

/// Returns why this backend cannot use the buffer, called `name`; empty if it can.
[[nodiscard]] std::string buffer_complaint(const Buffer& buffer, std::string_view name, Backend backend);

/// Returns why this backend cannot order operations behind the stream; empty if it can.
[[nodiscard]] std::string stream_complaint(const Stream& stream, Backend backend);

/// Returns why host memory is not that: CUDA knows it as device memory, which the CPU must not touch. Empty: it is, as
/// far as is known, or it is declared as device memory. The text begins with `article` and `name`: "the ", "input".
[[nodiscard]] std::string device_memory_complaint(const Buffer& buffer, std::string_view article,
                                                  std::string_view name);

/// Returns why this rank, which is spec.rank, cannot start the operation with these arguments; empty if it can.
[[nodiscard]] std::string complaint(const Operation& operation, const GroupSpec& spec, Backend backend);

}  // namespace ddp::detail

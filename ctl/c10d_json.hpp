#pragma once
// A board in the JSON schema of c10d's flight recorder, version 2.10, so that PyTorch's tools can read it. Pure.

#include <string>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::ctl {

/// What every export begins its "comm_lib_version" with.
inline constexpr const char* kDumpLibrary = "ddprun ";

/// One rank's dump. Beside c10d's members it has "ddprun": what c10d knows nothing of.
[[nodiscard]] std::string to_c10d_json(const coordinator::RankBoard& board, const std::string& run_id);

}  // namespace ddprun::ctl

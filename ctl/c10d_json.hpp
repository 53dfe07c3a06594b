#pragma once
// Writes a flight record in the JSON schema of c10d's flight recorder, version 2.10, so that PyTorch's tools can read
// it. Pure.

#include <string>

#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::ctl {

/// The beginning of "comm_lib_version" in every export.
inline constexpr const char* kDumpLibrary = "ddprun ";

/// Returns one rank's dump. Besides c10d's members it has "ddprun", with data that c10d's schema does not know.
[[nodiscard]] std::string to_c10d_json(const protocol::RankRecord& record, const std::string& run_id);

}  // namespace ddprun::ctl

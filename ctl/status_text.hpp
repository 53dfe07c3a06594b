#pragma once
// Formats the status of a job as text for the terminal. Pure.

#include <string>

#include "ctl/options.hpp"
#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::ctl {

/// Without --all, nodes that are fine are left out of a longer table; others are always in it.
inline constexpr std::size_t kMaxRows = 32;

/// Returns the job, its state, a table of its nodes, and its newest decisions. Control characters are escaped.
[[nodiscard]] std::string status_text(const protocol::Status& status, const StatusOptions& options);

}  // namespace ddprun::ctl

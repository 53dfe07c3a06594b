#pragma once
// Builds the label at the beginning of the console lines of a worker. Pure.

#include <string>
#include <string_view>

#include "common/ids.hpp"

namespace ddprun::agent {

/// The worker that printed a line.
struct LineSource {
    std::string host;
    std::string role;
    LocalRank local_rank{};
    Rank rank{};
};

/// torchrun's label of tee'd lines, for worker_label().
inline constexpr std::string_view kTorchrunLabel = "[${role_name}${local_rank}]:";

/// Returns the beginning of labelled lines: "[host:rank] ", or `text` with ${role_name}, ${local_rank}, ${rank} and
/// ${hostname} (without its domain) replaced, with or without braces. "$$" becomes "$"; any other '$' stays.
[[nodiscard]] std::string worker_label(std::string_view text, const LineSource& source);

}  // namespace ddprun::agent

#pragma once
// Builds the label at the beginning of the console lines of a worker. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "common/ids.hpp"

namespace ddprun::agent {

/// The worker that printed a line, or several workers of a node.
struct LineSource {
    std::string host;
    std::string role;                   ///< of several workers of different roles: "trainer,server"
    Rank rank_base{};                   ///< the rank of local rank 0
    std::vector<int> local_ranks = {};  ///< ascending
};

/// torchrun's label of tee'd lines, for worker_label().
inline constexpr std::string_view kTorchrunLabel = "[${role_name}${local_rank}]:";

/// Returns the label of folded lines: "[rank 3] " or "[ranks 0-2,5] ".
[[nodiscard]] std::string fold_label(const LineSource& source);

/// Returns the beginning of labelled lines: "[host:rank] ", or `text` with ${role_name}, ${local_rank}, ${rank} and
/// ${hostname} (without its domain) replaced, with or without braces. Several ranks are written as "0-2,5". "$$"
/// becomes "$"; any other '$' stays.
[[nodiscard]] std::string worker_label(std::string_view text, const LineSource& source);

/// Returns the names of the variables of worker_label().
[[nodiscard]] std::vector<std::string> label_variables();

/// Returns what looks like variables in `text`, as written, "${rnk}" of "${rnk}: $5", and is none of worker_label().
[[nodiscard]] std::vector<std::string> unknown_label_variables(std::string_view text);

}  // namespace ddprun::agent

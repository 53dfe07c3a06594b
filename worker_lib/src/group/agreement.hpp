#pragma once
// Checks that all ranks have passed the same list, with one small collective; describes the first difference.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/process_group.hpp"

namespace ddp::detail {

/// Collective over `group`. Every rank passes its list of items ("parameter 3 'fc1.weight' f32[4096]"). Returns if
/// the lists are equal; else throws Error{Mismatch} on every rank, naming the first item that differs, how, and on
/// which ranks: "the ranks disagree on WHAT: rank 0 (host a, pid 71) has …, but rank 2 (host b, pid 72) has …
/// (ranks that differ from rank 0: ranks 2 and 5)". The culprits are those outvoted(). `advice` ends the text.
/// `timeout` is that of the first operation, which ranks may call late; 0: the group's. Cost when equal: one all_reduce
/// of 16 bytes.
void require_agreement(ProcessGroup& group, std::string_view what, std::span<const std::string> items,
                       std::string_view advice = "Build the same model with the same options on every rank.",
                       std::optional<std::chrono::milliseconds> timeout = {});

/// Returns the ranks outside the largest set that has the same value; none if two sets are the largest.
[[nodiscard]] std::vector<int> outvoted(const std::map<std::uint64_t, std::vector<int>>& ranks_by_value);

}  // namespace ddp::detail

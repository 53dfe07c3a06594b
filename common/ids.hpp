#pragma once
// Types for numbers that must not be confused: a call with swapped arguments does not compile.

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

/// A worker's number in the job, 0 … world size - 1.
enum class Rank : int {};
/// A worker's number on its node, 0 … local world size - 1.
enum class LocalRank : int {};
/// A node's number in the job (GROUP_RANK), 0 … number of nodes - 1.
enum class NodeRank : int {};
/// The number of a worker group, counted up during the job. Messages, stores and connections of older ones are refused.
enum class Generation : std::int64_t {};

/// Return the plain number.
constexpr int number(Rank rank) { return static_cast<int>(rank); }
constexpr int number(LocalRank rank) { return static_cast<int>(rank); }
constexpr int number(NodeRank rank) { return static_cast<int>(rank); }
constexpr std::int64_t number(Generation generation) { return static_cast<std::int64_t>(generation); }
constexpr Generation next(Generation generation) { return Generation{number(generation) + 1}; }

/// Returns 128 random bits from getrandom(2) in hexadecimal, to name a node or a run without coordination.
/// Throws ErrorException when the system call fails.
[[nodiscard]] std::string random_id();

/// Checks a name that a user gives to a job. Returns the reason why it cannot be one: it is empty, longer than
/// kMaxRunIdBytes, not UTF-8, or has control characters. Empty: it is valid.
[[nodiscard]] std::string check_run_id(std::string_view id);

}  // namespace ddprun

#pragma once
// Numbers and names that must not be swapped get types of their own: a swapped call does not compile.

#include <cstdint>
#include <string>

namespace ddprun {

/// A worker's number in the job, 0 … world size - 1.
enum class Rank : int {};
/// A worker's number on its node, 0 … local world size - 1.
enum class LocalRank : int {};
/// A node's number in the job (GROUP_RANK), 0 … number of nodes - 1.
enum class NodeRank : int {};
/// The number of a worker group, counted up over the job's life; it fences everything that belongs to that group.
enum class Generation : std::int64_t {};

constexpr int number(Rank rank) { return static_cast<int>(rank); }
constexpr int number(LocalRank rank) { return static_cast<int>(rank); }
constexpr int number(NodeRank rank) { return static_cast<int>(rank); }
constexpr std::int64_t number(Generation generation) { return static_cast<std::int64_t>(generation); }
constexpr Generation next(Generation generation) { return Generation{number(generation) + 1}; }

/// 128 random bits in hexadecimal, from getrandom(2): names a node or a run without asking anybody.
/// Throws ErrorException when the system has no randomness to give.
[[nodiscard]] std::string random_id();

}  // namespace ddprun

#pragma once
// One-shot operations: small collectives inside a node. Each rank puts its data beside its announcement
// (Meetings::open), and reads the data that it needs beside the others' (after Meetings::join). There is one message
// each way and no barrier: a rank that has opened may be gone when the others finish. The first step does not wait, so
// the calling thread executes it.

#include <cstdint>
#include <span>

#include "worker_lib/src/native/collectives/collectives.hpp"

namespace ddp::detail {

/// Returns whether an operation is one-shot. Depends only on values that are the same on all ranks.
[[nodiscard]] bool is_one_shot(const Topology& topology, const Operation& operation);

/// Returns the data that this rank puts beside its announcement.
[[nodiscard]] std::span<const std::byte> one_shot_data(const Topology& topology, const Operation& operation);

/// The own data for a reduction. Both are equal unless the caller has written to its buffer since the announcement. In
/// the call that announced it, the cache line may still be on its way to peers, and reading it would wait for that.
enum class OwnData : std::uint8_t { kBuffer, kAnnounced };

/// Finishes the operation after Meetings::open() with that data and Meetings::join().
void finish_one_shot(const CollectiveContext& context, const Operation& operation, OwnData own);

}  // namespace ddp::detail

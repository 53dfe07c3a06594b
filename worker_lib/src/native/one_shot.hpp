#pragma once
// Small operations inside a node: each rank puts its data beside its announcement (Node::open), and takes what it needs
// from the others' (after Node::join). One message each way and no barrier: whoever has opened need not be there any
// more when the others finish. The first step waits for nobody, so the caller's thread takes it itself.

#include <cstdint>
#include <span>

#include "worker_lib/src/native/collectives.hpp"

namespace ddp::detail {

/// Decided by what all ranks know alike.
[[nodiscard]] bool is_one_shot(const Topology& topology, const Operation& operation);

/// What this rank puts beside its announcement.
[[nodiscard]] std::span<const std::byte> one_shot_data(const Topology& topology, const Operation& operation);

/// What this rank adds up for itself. They are the same unless the caller has written into its buffer since; what the
/// peers see may be on its way to them still in the call that announced it, and reading it would wait for that.
enum class OwnData : std::uint8_t { kBuffer, kAnnounced };

/// The rest, after Node::open() with that data and Node::join().
void finish_one_shot(const Team& team, const Operation& operation, OwnData own);

}  // namespace ddp::detail

#pragma once
// Small operations inside a node: each rank puts its data beside its announcement (Node::open), and takes what it needs
// from the others' (after Node::join). One message each way and no barrier: whoever has opened need not be there any
// more when the others finish. The first step waits for nobody, so the caller's thread takes it itself.

#include <span>

#include "worker_lib/src/native/collectives.hpp"

namespace ddp::detail {

/// Decided by what all ranks know alike.
[[nodiscard]] bool is_one_shot(const Topology& topology, const Operation& operation);

/// What this rank puts beside its announcement.
[[nodiscard]] std::span<const std::byte> one_shot_data(const Topology& topology, const Operation& operation);

/// The rest, after Node::open() with that data and Node::join().
void finish_one_shot(const Team& team, const Operation& operation);

}  // namespace ddp::detail

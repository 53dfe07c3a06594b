#pragma once
// Departure: the way in which a rank was lost to its group, and the failure of ranks that still need it. Pure.

#include <cstdint>
#include <optional>
#include <string_view>

#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

enum class Departure : std::uint32_t {
    kPresent,
    kLeft,             ///< it destroyed its group
    kLeftByException,  ///< it destroyed its group while an exception passed through its program
    kEnded,            ///< its process ended
    kLost,             ///< no message comes from its host: the host, or the network, is down
    kLeftInFlight,     ///< it destroyed its group with work in flight that others need
};

/// Returns the failure of kind kPeerLost of a peer whose host does not answer: "rank 0 cannot reach rank 3 (host b, …".
/// self   the name of the own rank
[[nodiscard]] Failure unreachable_failure(std::string_view self, int rank, std::string_view name);

/// Returns the failure of kind kPeerLost: "rank 3 (host b, pid 7) has left the group normally after operation #5. …"
/// after   the last operation that the rank has completed; nothing: unknown
[[nodiscard]] Failure departure_failure(int rank, std::string_view name, Departure how,
                                        std::optional<std::uint64_t> after);

}  // namespace ddp::detail

#pragma once
// Departure: the way in which a rank was lost to its group, and the error of ranks that still need it. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ddp/error.hpp"

namespace ddp::detail {

enum class Departure : std::uint32_t {
    kPresent,
    kLeft,             ///< it destroyed its group
    kLeftByException,  ///< it destroyed its group while an exception passed through its program
    kEnded,            ///< its process ended
    kLost,             ///< no message comes from its host: the host, or the network, is down
    kLeftInFlight,     ///< it destroyed its group with work in flight that others need
};

/// Returns Error{PeerLost}: "rank 3 (host b, pid 7) has left the group normally after operation #5. …"
/// after   the last operation that the rank has completed; nothing: unknown
[[nodiscard]] Error departure_error(int rank, std::string_view name, Departure how, std::optional<std::uint64_t> after);

/// Returns `cause` with its reader and operation in front: "group 'world': rank 0 cannot finish #6 barrier: …". Removes
/// another reader and operation that are in front already.
/// self   as name_self()
[[nodiscard]] Error cannot_finish(std::string_view group, std::string_view self, std::string_view operation,
                                  const Error& cause);

/// Returns such a text without its reader and operation: "group 'world': …". Returns other texts unchanged.
[[nodiscard]] std::string without_reader(std::string_view text);

}  // namespace ddp::detail

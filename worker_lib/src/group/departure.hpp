#pragma once
// Departure: how a rank came to be gone from its group, and the words in which those who still need it hear of it.
// Pure.

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
    kLost,             ///< its host is heard of no more: that ended, or the network did
    kLeftInFlight,     ///< it destroyed its group with work in flight, in which others need it
};

/// Error{PeerLost}: "rank 3 (host b, pid 7) has left the group normally after operation #5. …"
/// after   the last operation that the rank has done; nothing if that is unknown
[[nodiscard]] Error departure_error(int rank, std::string_view name, Departure how, std::optional<std::uint64_t> after);

/// Puts before the text of `cause` what its reader was doing: "group 'world': rank 0 cannot finish #6 barrier: …". What
/// another operation, or another rank, could not finish of the same cause is left out.
/// self   as name_self()
[[nodiscard]] Error cannot_finish(std::string_view group, std::string_view self, std::string_view operation,
                                  const Error& cause);

/// That text without what its reader was doing: "group 'world': …". Others stay as they are.
[[nodiscard]] std::string without_reader(std::string_view text);

}  // namespace ddp::detail

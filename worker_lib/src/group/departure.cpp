#include "worker_lib/src/group/departure.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ddp::detail {

Failure departure_failure(int rank, std::string_view name, Departure how, std::optional<std::uint64_t> after) {
    std::string when = after ? fmt::format(" after operation #{}", *after) : "";
    if (after == 0u) when = " before any operation";
    std::string text;
    switch (how) {
        case Departure::kPresent: text = fmt::format("{} is present{}", name, when); break;
        case Departure::kLeft:
            text = fmt::format(
                "{} has left the group normally{}. Do all ranks run the same number of steps and collectives?", name,
                when);
            break;
        case Departure::kLeftInFlight:
            text = fmt::format(
                "{} has left the group{} with work in flight: it did not wait for its last operations. Each rank "
                "must wait for its Work before its ProcessGroup ends",
                name, after == 0u ? "" : when);
            break;
        case Departure::kLeftByException:
            text = fmt::format("{} has left the group because of an exception{}. See its output", name, when);
            break;
        case Departure::kEnded: text = fmt::format("{} is gone: its process ended{}", name, when); break;
        case Departure::kLost:
            text = fmt::format("{} is gone: its process ended, or its host is down or cut off{}", name, when);
            break;
    }
    return {.kind = FailureKind::kPeerLost, .code = ErrorCode::PeerLost, .cause = std::move(text), .culprits = {rank}};
}

Failure unreachable_failure(std::string_view self, int rank, std::string_view name) {
    return {
        .kind = FailureKind::kPeerLost,
        .code = ErrorCode::PeerLost,
        .cause = fmt::format("{} cannot reach {} any more: its host acknowledges nothing. That host is down, or the "
                             "network between the two is cut",
                             self, name),
        .culprits = {rank}};
}

}  // namespace ddp::detail

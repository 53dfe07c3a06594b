#pragma once
// PeerStates: what a connected group knows about its ranks. Backends implement it, for calls that wait for ranks at the
// store.

#include <optional>
#include <string>

#include "ddp/error.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"

namespace ddp::detail {

/// What a backend knows of another rank.
struct RankState {
    bool gone = false;  ///< it is lost, or has left: it takes part in no operation any more
    std::string text;   ///< says so in a sentence that begins with its name; empty: nothing is known
    // Why it is gone; neither: its host does not answer, which may be the network's fault.
    bool left = false;   ///< it destroyed the group; its process may go on
    bool ended = false;  ///< its process has ended, by its kernel
};

class PeerStates {
public:
    virtual ~PeerStates() = default;
    /// Returns the failure of the group, if it has failed. Any thread.
    [[nodiscard]] virtual std::optional<Error> failure() const { return std::nullopt; }
    /// Returns "host a, pid 71", or nothing. Any thread, as the next ones; all work after a failure, too.
    [[nodiscard]] virtual std::string location_of(int /*rank*/) const { return {}; }
    /// Returns a rank's number in the job; -1: unknown.
    [[nodiscard]] virtual int global_rank(int /*rank*/) const { return -1; }
    /// Returns a rank's name as name_rank() does.
    [[nodiscard]] std::string name_of(int rank) const { return name_rank(rank, global_rank(rank), location_of(rank)); }
    [[nodiscard]] virtual RankState state_of(int /*rank*/) const { return {}; }
    /// Returns the pid of a rank of this machine if it is stopped; 0: it is not, or nothing is known. Reads files.
    [[nodiscard]] virtual int stopped_pid(int /*rank*/) const { return 0; }
};

}  // namespace ddp::detail

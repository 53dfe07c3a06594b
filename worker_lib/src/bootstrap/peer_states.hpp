#pragma once
// PeerStates: the states of a connected group's ranks, as far as the group knows them. Backends implement it, and calls
// that wait for ranks at the store read it.

#include <optional>
#include <string>

#include "ddp/error.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"

namespace ddp::detail {

/// The state of another rank, as far as a backend knows it.
struct RankState {
    bool gone = false;  ///< it is lost or has left, and takes part in no further operation
    std::string text;   ///< a sentence that begins with the rank's name; empty: nothing is known
    // The reason why it is gone. Neither: its host does not answer, which may be the network's fault.
    bool left = false;   ///< it destroyed the group; its process may go on
    bool ended = false;  ///< its kernel has reported the end of its process
};

class PeerStates {
public:
    virtual ~PeerStates() = default;
    /// Returns the failure of the group, if it has failed. Any thread.
    [[nodiscard]] virtual std::optional<Error> failure() const { return std::nullopt; }
    /// Returns "host a, pid 71", or nothing. Any thread may call this and the next ones, also after a failure.
    [[nodiscard]] virtual std::string location_of(int /*rank*/) const { return {}; }
    /// Returns a rank's number in the job; -1: unknown.
    [[nodiscard]] virtual int global_rank(int /*rank*/) const { return -1; }
    /// Returns a rank's name as name_rank() does.
    [[nodiscard]] std::string name_of(int rank) const { return name_rank(rank, global_rank(rank), location_of(rank)); }
    [[nodiscard]] virtual RankState state_of(int /*rank*/) const { return {}; }
    /// Returns the pid of a rank of this machine if it is stopped; 0 if it is not or nothing is known. Reads files.
    [[nodiscard]] virtual int stopped_pid(int /*rank*/) const { return 0; }
};

}  // namespace ddp::detail

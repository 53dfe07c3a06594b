#pragma once
// Peers: knows the addresses of a group's ranks, as each has published it, and watches the processes of those on this
// machine. NCCL names no rank, and may not notice that a peer is lost. Any thread.

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/operation/failure.hpp"

namespace ddp::detail {

/// Between two looks at the processes of the peers, while anything waits for them.
inline constexpr auto kLookInterval = std::chrono::milliseconds(100);
/// From an error of NCCL to the end of the process that causes it: its sockets are closed first.
inline constexpr auto kEndingTime = std::chrono::milliseconds(500);

class Peers {
public:
    /// Returns the record that this rank publishes.
    [[nodiscard]] static std::string own_record(const GroupSpec& spec);
    /// records   every rank's own_record(), by rank
    /// Throws Error{PeerLost} if a process here has ended meanwhile, Error{System} for an invalid record.
    Peers(const GroupSpec& spec, const std::vector<std::string>& records);

    /// Returns "host a, pid 71".
    [[nodiscard]] std::string location_of(int rank) const { return at(rank).address; }
    [[nodiscard]] int global_rank(int rank) const { return at(rank).global_rank; }
    /// Returns the ranks in this group of `ranks` of another one, without those that are not in this group.
    [[nodiscard]] std::vector<int> ranks_here(const std::vector<int>& ranks, const Peers& other) const;
    /// Returns the failure for a rank whose process is known to have ended: "rank 3 (host a, pid 71) is gone: its
    /// process ended".
    [[nodiscard]] std::optional<Failure> loss_of(int rank) const;
    /// Returns whether a process of a rank here has ended. Waits up to `timeout` for that. One system call, none if no
    /// process is watched.
    [[nodiscard]] bool await_loss(ddprun::Duration timeout) const;
    [[nodiscard]] bool watches_any() const { return !watched_.empty(); }
    /// Returns one error that names all ranks whose process is known to have ended, or nothing if there is none.
    [[nodiscard]] std::optional<Error> losses() const;

private:
    struct Peer {
        std::string address;
        int global_rank = -1;
        ddprun::UniqueFd process;  // none for the own rank and those elsewhere
    };
    [[nodiscard]] const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

    std::vector<Peer> peers_;
    std::vector<pollfd> watched_;  // the processes of peers_
};

/// Returns the address of this process: "host a, pid 71".
[[nodiscard]] std::string own_address();

}  // namespace ddp::detail

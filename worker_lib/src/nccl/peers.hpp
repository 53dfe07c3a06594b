#pragma once
// Peers: where the ranks of a group are, as each has published it, and which of those on this machine have ended, as
// its kernel says. NCCL names no rank, and may not notice that a neighbour is gone. Any thread.

#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"
#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

class Peers {
public:
    /// What this rank publishes.
    [[nodiscard]] static std::string own_record(const GroupSpec& spec);
    /// records   everybody's, by rank
    /// Throws Error{PeerLost} if one here has ended meanwhile, Error{System} for what own_record() did not write.
    Peers(const GroupSpec& spec, const std::vector<std::string>& records);

    /// "host a, pid 71".
    [[nodiscard]] std::string where_is(int rank) const { return at(rank).place; }
    [[nodiscard]] int global_rank(int rank) const { return at(rank).global_rank; }
    /// Of a rank whose process is known to have ended: "rank 3 (host a, pid 71) is gone: its process ended".
    [[nodiscard]] std::optional<Error> absence_of(int rank) const;
    /// Of all of them; nothing: none is known to be gone.
    [[nodiscard]] std::optional<Error> absence() const;

private:
    struct Peer {
        std::string place;
        int global_rank = -1;
        ddprun::UniqueFd process;  // none for the own one and those elsewhere
    };
    [[nodiscard]] const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

    std::vector<Peer> peers_;
};

/// "host a, pid 71": this process.
[[nodiscard]] std::string place_here();

}  // namespace ddp::detail

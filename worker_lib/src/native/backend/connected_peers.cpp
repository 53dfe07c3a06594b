#include "worker_lib/src/native/backend/connected_peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/text/escape.hpp"

namespace ddp::detail {

ConnectedPeers::ConnectedPeers(const GroupSpec& spec, Connected& connected)
    : group_(spec.name),
      rank_(spec.rank),
      topology_(std::move(connected.topology)),
      members_(std::move(connected.members)),
      arena_(std::move(connected.segment)),
      node_(spec.name, static_cast<int>(members_.size()), std::move(connected.local), topology_.own_index) {
    if (!connected.links.empty()) links_.emplace(spec.name, spec.generation, std::move(connected.links), node_);
    if (!connected.leaders.empty()) watch_.emplace(node_, spec.generation, std::move(connected.leaders));
}

std::vector<std::span<const std::byte>> ConnectedPeers::arenas() const {
    if (topology_.nodes.size() != 1) return {};
    std::vector<std::span<const std::byte>> arenas(members_.size());
    for (int i = 0; i < node_.ranks.size(); ++i)
        arenas[static_cast<std::size_t>(node_.ranks.rank_at(i))] = {node_.ranks.heap(i),
                                                                    node_.ranks.local(i).segment->heap_bytes()};
    return arenas;
}

std::optional<Error> ConnectedPeers::failure() const {
    const auto failure = node_.failure.for_this_rank();
    return failure ? std::optional(to_error(*failure, group_, node_.ranks.self())) : std::nullopt;
}

std::string ConnectedPeers::location_of(int rank) const {
    return location_text(members_[static_cast<std::size_t>(rank)]);
}

namespace {

RankState state_after(const Absence& absence) {
    return {.gone = true,
            .text = ddprun::escape_controls(absence.failure.cause),
            .left = absence.how == Departure::kLeft || absence.how == Departure::kLeftInFlight ||
                    absence.how == Departure::kLeftByException,
            .ended = absence.how == Departure::kEnded};
}

}  // namespace

std::optional<int> ConnectedPeers::neighbour(int rank) const {
    const auto& local = topology_.local();
    const auto index = static_cast<int>(std::ranges::find(local, rank) - local.begin());
    if (index == node_.ranks.size() || rank == rank_) return std::nullopt;
    return index;
}

/// Describes a rank of this node. A rank of another node is known only to be lost, and only if this rank is the
/// leader of its own node.
RankState ConnectedPeers::state_of(int rank) const {
    const auto lost = watch_ ? watch_->departure_of(rank) : std::nullopt;
    const auto index = neighbour(rank);
    if (!index) return lost ? state_after(*lost) : RankState{};
    if (const auto absence = node_.progress.absence(*index)) return state_after(*absence);
    const auto [begun, done] = node_.progress.of(*index);
    const std::string last = done == 0 ? "has completed none" : fmt::format("last completed #{}", done);
    if (begun > done) return {false, fmt::format("{} is alive, and in operation #{}", name_of(rank), begun)};
    return {false, fmt::format("{} is alive and in no operation; it {}", name_of(rank), last)};
}

int ConnectedPeers::stopped_pid(int rank) const {
    const auto index = neighbour(rank);
    return index ? node_.ranks.stopped_pid(*index) : 0;
}

}  // namespace ddp::detail

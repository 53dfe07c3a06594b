// All-reduce and reduce between nodes. Each of the ranks that talk to other nodes reduces its slice of everybody's
// input over its node, adds it up with its counterparts on the other nodes, and stores the result to everybody's
// output, or the root's only. By which algorithm, all_reduce_rules.hpp says.

#include <algorithm>
#include <cassert>
#include <vector>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/all_reduce_rules.hpp"
#include "worker_lib/src/native/sum_stream.hpp"

namespace ddp::detail {

namespace {

class AllReduceAcross {
public:
    AllReduceAcross(const Team& team, const Operation& operation, const OwnBuffers& own)
        : parts_(team, operation, own),
          team_(team),
          operation_(operation),
          algorithm_(team.rules.choose(operation.buffer.bytes(), team.nodes())) {}

    void run() {
        // Where ranks have neighbours, some of which may stage on one node and not on another, all go in pieces that
        // fit a slot.
        const auto has_one_rank = [](const std::vector<int>& ranks) { return ranks.size() == 1; };
        const bool whole = std::ranges::all_of(team_.topology.nodes, has_one_rank);
        const std::size_t count = std::max<std::size_t>(1, operation_.buffer.count);
        parts_.in_pieces(whole ? count : kNetworkPieceBytes / parts_.width,
                         [this](std::size_t first, std::size_t size) { reduce_piece(first, size); });
    }

private:
    /// Our share of elements [first, first + size), for everybody.
    void reduce_piece(std::size_t first, std::size_t size) {
        if (!team_.topology.own_carries()) return;
        const Slice slice{.first = first,
                          .range = part(size, static_cast<std::size_t>(team_.topology.carriers),
                                        static_cast<std::size_t>(team_.node.own_index()), parts_.grain),
                          .opening = team_.is_leader() && first == 0};
        if (slice.range.empty() && !slice.opening) return;
        if (algorithm_ == NetworkAlgorithm::kDoubling) return hand_on(slice);
        SumStream stream(parts_, algorithm_, slice, step_);
        team_.links->exchange(operation_, stream.ranks(), stream);
        assert(stream.finished());
        step_ = stream.next_step();
    }

    /// All nodes' sums come to every node in as many steps as their number has bits: in each a node hands on what it
    /// has, its own first, and so doubles it (Bruck's algorithm).
    void hand_on(const Slice& slice) {
        const std::size_t nodes = team_.nodes();
        const auto own = static_cast<std::size_t>(team_.topology.own_node);
        const std::size_t bytes = slice.range.size() * parts_.reduction.accumulator_bytes;
        // Place i is for the sums of node (own + i) modulo their number.
        const auto all = team_.scratch.inbox.first(nodes * bytes);
        if (bytes > 0) {
            const auto from = parts_.sources(slice.first, slice.range.begin);
            parts_.reduction.reduce(from.data(), from.size(), slice.range.size(), all.data());
        }
        for (std::size_t have = 1; have < nodes; have *= 2) {
            const std::size_t more = std::min(have, nodes - have);
            const OutMessage out{counterpart((own + nodes - have) % nodes), all.first(more * bytes)};
            const InMessage in{counterpart((own + have) % nodes), all.subspan(have * bytes, more * bytes)};
            team_.links->exchange(operation_, step_++, std::span(&out, 1), std::span(&in, 1));
        }
        std::byte* const to = parts_.landing(slice.first, slice.range.begin);
        if (bytes == 0 || to == nullptr) return;
        std::vector<const void*> sums;
        for (std::size_t node = 0; node < nodes; ++node)
            sums.push_back(all.data() + (node + nodes - own) % nodes * bytes);
        const auto total = team_.scratch.sums.first(bytes);
        parts_.reduction.combine(sums.data(), nodes, slice.range.size(), total.data());
        parts_.reduction.finish(total.data(), slice.range.size(), parts_.scale, to);
        parts_.spread(slice.first, slice.range.begin, slice.range.size());
    }

    int counterpart(std::size_t node) const { return team_.topology.counterpart(static_cast<int>(node)); }

    const AllReduceParts parts_;
    const Team& team_;
    const Operation& operation_;
    const NetworkAlgorithm algorithm_;
    std::uint32_t step_ = 0;
};

}  // namespace

void all_reduce_across(const Team& team, const Operation& operation, const OwnBuffers& own) {
    AllReduceAcross(team, operation, own).run();
}

}  // namespace ddp::detail

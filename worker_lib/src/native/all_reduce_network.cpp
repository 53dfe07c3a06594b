// All-reduce and reduce between nodes. Each of the ranks that talk to other nodes reduces its slice of everybody's
// input over its node, adds it up with its counterparts on the other nodes, and stores the result to everybody's
// output, or the root's only.

#include <vector>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/partition.hpp"

namespace ddp::detail {

namespace {

class AllReduceAcross {
public:
    AllReduceAcross(const Team& team, const Operation& operation, const OwnBuffers& own)
        : parts_(team, operation, own), team_(team), operation_(operation) {}

    void run() {
        parts_.in_pieces(kNetworkPieceBytes / parts_.width,
                         [this](std::size_t first, std::size_t size) { reduce_piece(first, size); });
    }

private:
    /// Whether a node holds a rank that gets the result.
    bool gets_any(int node) const {
        return operation_.kind != OpKind::kReduce || team_.topology.node_of(operation_.root) == node;
    }

    /// Our share of elements [first, first + size), for everybody.
    void reduce_piece(std::size_t first, std::size_t size) {
        if (team_.topology.own_carries()) {
            const Range mine = part(size, static_cast<std::size_t>(team_.topology.carriers),
                                    static_cast<std::size_t>(team_.node.own_index()), parts_.grain);
            if (!mine.empty() || (team_.is_leader() && first == 0)) reduce_slice(first, mine);
        }
        step_ += 2;
    }

    void reduce_slice(std::size_t first, Range range) {
        sums_ = team_.scratch.sums.first(range.size() * parts_.reduction.accumulator_bytes);
        result_ = team_.scratch.result.first(range.size() * parts_.width);
        if (!range.empty()) {
            const auto from = parts_.sources(first, range.begin);
            parts_.reduction.reduce(from.data(), from.size(), range.size(), sums_.data());
        }
        sum_own_part(range.size());
        gather_parts(range.size());
        if (!range.empty()) parts_.store(result_.data(), first, range.begin, range.size());
    }

    /// Which elements of a slice of `size` this or another node sums up.
    Range part_of(int node, std::size_t size) const {
        return part(size, team_.nodes(), static_cast<std::size_t>(node), parts_.grain);
    }

    template <typename Function>
    void for_other_nodes(Function function) const {
        for (int node = 0; node < static_cast<int>(team_.nodes()); ++node) {
            if (node != team_.topology.own_node) function(node, team_.topology.counterpart(node));
        }
    }

    /// Every node sends every other node that one's part of its sums, and adds up its own part in the order of the
    /// nodes.
    void sum_own_part(std::size_t size) {
        const std::size_t width = parts_.reduction.accumulator_bytes;
        const Range mine = part_of(team_.topology.own_node, size);
        // The first exchange is also the comparison of what was called: nobody is left out.
        const bool opening = team_.is_leader() && step_ == 0;
        const auto inbox = team_.scratch.inbox.first(mine.size() * width * team_.nodes());
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        std::vector<const void*> sums(team_.nodes(), sums_.data() + mine.begin * width);
        for_other_nodes([&](int node, int peer) {
            const Range theirs = part_of(node, size);
            if (!theirs.empty() || opening)
                out.push_back({peer, sums_.subspan(theirs.begin * width, theirs.size() * width)});
            const auto slot = inbox.subspan(mine.size() * width * static_cast<std::size_t>(node), mine.size() * width);
            if (!mine.empty() || opening) in.push_back({peer, slot});
            sums[static_cast<std::size_t>(node)] = slot.data();
        });
        team_.links->exchange(operation_, step_, out, in);
        if (mine.empty()) return;
        std::byte* const total = sums_.data() + mine.begin * width;
        parts_.reduction.combine(sums.data(), sums.size(), mine.size(), total);
        parts_.reduction.finish(total, mine.size(), parts_.scale, result_.data() + mine.begin * parts_.width);
    }

    /// Every node sends its finished part to all others that need it.
    void gather_parts(std::size_t size) {
        const auto bytes_of = [&](Range range) {
            return result_.subspan(range.begin * parts_.width, range.size() * parts_.width);
        };
        const auto mine = bytes_of(part_of(team_.topology.own_node, size));
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for_other_nodes([&](int node, int peer) {
            const auto theirs = bytes_of(part_of(node, size));
            if (!mine.empty() && gets_any(node)) out.push_back({peer, mine});
            if (!theirs.empty() && gets_any(team_.topology.own_node)) in.push_back({peer, theirs});
        });
        team_.links->exchange(operation_, step_ + 1, out, in);
    }

    const AllReduceParts parts_;
    const Team& team_;
    const Operation& operation_;
    std::uint32_t step_ = 0;
    std::span<std::byte> sums_;  ///< see OperationScratch
    std::span<std::byte> result_;
};

}  // namespace

void all_reduce_across(const Team& team, const Operation& operation, const OwnBuffers& own) {
    AllReduceAcross(team, operation, own).run();
}

}  // namespace ddp::detail

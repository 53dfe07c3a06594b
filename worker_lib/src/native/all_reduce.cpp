// All-reduce and reduce. Inside a node each rank reduces its slice of everybody's input and stores the result to
// everybody's output, or the root's only: one pass over the memory, two barriers. Between nodes the slice also passes
// over the network before it is stored.

#include <algorithm>
#include <array>
#include <cstring>

#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/reduce.hpp"

namespace ddp::detail {

namespace {

/// What is reduced and stored at a time: with a few ranks' worth of it, it stays in the first-level cache.
constexpr std::size_t kBlockBytes = 8192;

class AllReduce {
public:
    AllReduce(const Team& team, const Operation& operation, const OwnBuffers& own)
        : team_(team),
          operation_(operation),
          own_(own),
          reduction_(lookup(operation.buffer.dtype, operation.reduce_op)),
          width_(size_of(operation.buffer.dtype)),
          grain_(kSeparation / width_) {
        if (operation.reduce_op == ReduceOp::Avg) scale_ = 1.0 / team.topology.ranks();
        for (int i = 0; i < team.node.size(); ++i) {
            if (gets_result(team.node.rank_at(i))) receivers_.push_back(i);
        }
    }

    void run() {
        const std::size_t count = operation_.buffer.count;
        const std::size_t staged_piece = (team_.nodes() > 1 ? kNetworkPieceBytes : kLocalPieceBytes) / width_;
        const bool receives = gets_result(team_.node.rank_at(team_.node.own_index()));
        if (own_.input.is_foreign()) stage(0, std::min(count, staged_piece));
        team_.node.meet(operation_,
                        {.input = own_.input.place(), .output = receives ? own_.output.place() : Places::kNone});
        const bool staged = team_.node.any_foreign(Side::kInput) || team_.node.any_foreign(Side::kOutput);
        const std::size_t piece = staged || team_.nodes() > 1 ? staged_piece : std::max<std::size_t>(count, 1);

        std::size_t first = 0;
        do {  // once for no elements at all, too: leaders on other nodes expect to hear from ours
            const std::size_t size = std::min(piece, count - first);
            if (first > 0 && staged) {
                if (own_.input.is_foreign()) stage(first, size);
                team_.node.barrier(operation_);
            }
            reduce_piece(first, size);
            if (staged || first + size == count) team_.node.barrier(operation_);
            if (receives && own_.output.is_foreign())
                own_.output.copy_in_from(team_.node.staging(team_.node.own_index()), first * width_, size * width_);
            first += size;
        } while (first < count);
    }

private:
    bool gets_result(int rank) const { return operation_.kind != OpKind::kReduce || rank == operation_.root; }

    /// Whether a node holds a rank that gets the result.
    bool gets_any(int node) const {
        return operation_.kind != OpKind::kReduce || team_.topology.node_of(operation_.root) == node;
    }

    void stage(std::size_t first, std::size_t size) const {
        own_.input.copy_out_to(team_.node.staging(team_.node.own_index()), first * width_, size * width_);
    }

    /// Our share of elements [first, first + size), for everybody.
    void reduce_piece(std::size_t first, std::size_t size) {
        const auto index = static_cast<std::size_t>(team_.node.own_index());
        if (team_.nodes() == 1) {
            const Range mine = part(size, static_cast<std::size_t>(team_.node.size()), index, grain_);
            if (team_.node.size() > 1 || own_.input.data != own_.output.data) reduce_and_store(first, mine);
        } else if (team_.topology.own_carries()) {
            const Range mine = part(size, static_cast<std::size_t>(team_.topology.carriers), index, grain_);
            if (!mine.empty() || (team_.is_leader() && first == 0)) reduce_across(first, mine);
        }
        step_ += 2;
    }

    /// Everybody's elements of `range`, counted from `first`, as the list that the kernels take.
    std::vector<const void*> sources(std::size_t first, std::size_t begin) const {
        std::vector<const void*> list;
        for (int i = 0; i < team_.node.size(); ++i)
            list.push_back(place(team_.node, i, Side::kInput, first * width_) + begin * width_);
        return list;
    }

    void store(const std::byte* elements, std::size_t first, std::size_t begin, std::size_t size) const {
        for (const int i : receivers_) {
            std::memcpy(place(team_.node, i, Side::kOutput, first * width_) + begin * width_, elements, size * width_);
        }
    }

    void reduce_and_store(std::size_t first, Range range) const {
        alignas(kSeparation) std::array<std::byte, kBlockBytes> sums;
        alignas(kSeparation) std::array<std::byte, kBlockBytes> rounded;
        std::byte* const elements = width_ == reduction_.accumulator_bytes ? sums.data() : rounded.data();
        auto from = sources(first, range.begin);
        const std::size_t block = kBlockBytes / reduction_.accumulator_bytes;
        for (std::size_t begin = range.begin; begin < range.end; begin += block) {
            const std::size_t size = std::min(block, range.end - begin);
            reduction_.reduce(from.data(), from.size(), size, sums.data());
            reduction_.finish(sums.data(), size, scale_, elements);
            store(elements, first, begin, size);
            for (const void*& source : from) source = static_cast<const std::byte*>(source) + size * width_;
        }
    }

    void reduce_across(std::size_t first, Range range) {
        sums_ = team_.scratch.sums.first(range.size() * reduction_.accumulator_bytes);
        result_ = team_.scratch.result.first(range.size() * width_);
        if (!range.empty()) {
            const auto from = sources(first, range.begin);
            reduction_.reduce(from.data(), from.size(), range.size(), sums_.data());
        }
        sum_own_part(range.size());
        gather_parts(range.size());
        if (!range.empty()) store(result_.data(), first, range.begin, range.size());
    }

    /// Which elements of a slice of `size` this or another node sums up.
    Range part_of(int node, std::size_t size) const {
        return part(size, team_.nodes(), static_cast<std::size_t>(node), grain_);
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
        const std::size_t width = reduction_.accumulator_bytes;
        const Range mine = part_of(team_.topology.own_node, size);
        const bool opening =
            team_.is_leader() && step_ == 0;  // this exchange is also the comparison: nobody is left out
        const auto inbox = team_.scratch.inbox.first(mine.size() * width * team_.nodes());
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        std::vector<const void*> parts(team_.nodes(), sums_.data() + mine.begin * width);
        for_other_nodes([&](int node, int peer) {
            const Range theirs = part_of(node, size);
            if (!theirs.empty() || opening)
                out.push_back({peer, sums_.subspan(theirs.begin * width, theirs.size() * width)});
            const auto slot = inbox.subspan(mine.size() * width * static_cast<std::size_t>(node), mine.size() * width);
            if (!mine.empty() || opening) in.push_back({peer, slot});
            parts[static_cast<std::size_t>(node)] = slot.data();
        });
        team_.links->exchange(operation_, step_, out, in);
        if (mine.empty()) return;
        std::byte* const sums = sums_.data() + mine.begin * width;
        reduction_.combine(parts.data(), parts.size(), mine.size(), sums);
        reduction_.finish(sums, mine.size(), scale_, result_.data() + mine.begin * width_);
    }

    /// Every node sends its finished part to all others that need it.
    void gather_parts(std::size_t size) {
        const auto bytes_of = [&](Range range) { return result_.subspan(range.begin * width_, range.size() * width_); };
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

    const Team& team_;
    const Operation& operation_;
    const OwnBuffers& own_;
    const Reduction& reduction_;
    const std::size_t width_;
    const std::size_t grain_;  ///< elements of a pair of cache lines
    double scale_ = 1;
    std::vector<int> receivers_;  ///< local indices of those who get the result
    std::uint32_t step_ = 0;
    std::span<std::byte> sums_;  ///< see NetworkScratch
    std::span<std::byte> result_;
};

}  // namespace

void all_reduce(const Team& team, const Operation& operation, const OwnBuffers& own) {
    AllReduce(team, operation, own).run();
}

}  // namespace ddp::detail

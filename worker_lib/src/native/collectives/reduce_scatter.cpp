// Reduce-scatter. Inside a node each rank reduces its chunk of all inputs into its own output, in one pass. Between
// nodes it is a pairwise exchange (Thakur, Rabenseifner, Gropp 2005) with all peers at once. The chunks of a node's
// ranks, laid end to end, are divided among the carriers. Each carrier reduces its slice over its own node and sends
// the sums to its counterpart on that node, which adds up the sums of all nodes and stores them to the outputs.

#include <algorithm>

#include "worker_lib/src/kernels/reduce.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/native/collectives/scatter_stream.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

namespace {

/// One reduce-scatter, of one rank.
class ReduceScatter final : ScatterSums {
public:
    ReduceScatter(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own)
        : context_(context),
          node_(context.node),
          operation_(operation),
          own_(own),
          reduction_(lookup(operation.part().dtype, operation.reduce_op)),
          width_(size_of(operation.part().dtype)),
          count_(operation.part().count),
          stages_own_(node_.ranks.size() > 1 && own.input.is_foreign()) {
        if (operation.reduce_op == ReduceOp::Avg) scale_ = 1.0 / context.topology.ranks();
    }

    void run() {
        const bool across = context_.nodes() > 1;
        choose_piece(true);
        if (stages_own_) stage();
        node_.meetings.meet(operation_, {.input = own_.input.offset(), .output = own_.output.offset()});
        const bool staged = node_.ranks.size() > 1 && (node_.meetings.any_foreign(Side::kInput) ||
                                                       (across && node_.meetings.any_foreign(Side::kOutput)));
        choose_piece(staged);
        do {  // even without elements: the leaders of other nodes expect a message from this one
            size_ = std::min(piece_, count_ - first_);
            if (first_ > 0 && staged) {
                if (stages_own_) stage();
                node_.barrier.arrive_and_wait(operation_);
            }
            if (across) {
                reduce_across();
            } else {
                reduce_own_chunk();
            }
            const bool last = first_ + size_ == count_;
            if (staged || last) node_.barrier.arrive_and_wait(operation_);
            if (across && output_is_staged(node_.ranks.own_index())) {
                own_.output.copy_in_from(node_.ranks.staging(node_.ranks.own_index()) + kHalfSlot, first_ * width_,
                                         size_ * width_);
            }
            first_ += size_;
        } while (first_ < count_);
    }

private:
    /// Chooses how many elements of every chunk are reduced at a time. Between nodes all ranks choose the same, whether
    /// they stage or not.
    void choose_piece(bool staged) {
        const auto ranks = static_cast<std::size_t>(context_.topology.ranks());
        piece_ = std::max<std::size_t>(count_, 1);
        if (context_.nodes() == 1 ? !staged : context_.topology.has_one_rank_each()) return;
        const std::size_t bytes = context_.nodes() > 1 ? kHalfSlot : kLocalPieceBytes;
        piece_ = std::clamp<std::size_t>(bytes / (ranks * width_), 1, piece_);
    }

    void stage() {
        size_ = std::min(piece_, count_ - first_);
        std::byte* const slot = node_.ranks.staging(node_.ranks.own_index());
        for (std::size_t chunk = 0; chunk < static_cast<std::size_t>(context_.topology.ranks()); ++chunk) {
            own_.input.copy_out_to(slot + chunk * size_ * width_, (chunk * count_ + first_) * width_, size_ * width_);
        }
    }

    /// Returns the addresses of the local ranks' inputs for `rank`, from element `offset` of the piece.
    std::vector<const void*> sources(int rank, std::size_t offset) const {
        const auto chunk = static_cast<std::size_t>(rank);
        const std::size_t whole = (chunk * count_ + first_ + offset) * width_;
        std::vector<const void*> list;
        for (int i = 0; i < node_.ranks.size(); ++i) {
            if (i == node_.ranks.own_index()) {
                list.push_back(own_.input.data + whole);
            } else if (node_.meetings.is_foreign(i, Side::kInput)) {
                list.push_back(node_.ranks.staging(i) + (chunk * size_ + offset) * width_);
            } else {
                list.push_back(node_.meetings.buffer(i, Side::kInput) + whole);
            }
        }
        return list;
    }

    void reduce_own_chunk() const {
        if (size_ == 0) return;
        const auto from = sources(node_.ranks.rank_at(node_.ranks.own_index()), 0);
        void* const to = own_.output.data + first_ * width_;
        reduction_.reduce_into(from.data(), from.size(), size_, scale_, &to, 1);
    }

    /// Returns this carrier's slice of the chunks of a node's ranks, laid end to end.
    Range slice(std::size_t node) const {
        return part(context_.topology.nodes[node].size() * size_, static_cast<std::size_t>(context_.topology.carriers),
                    static_cast<std::size_t>(node_.ranks.own_index()), kSeparation / width_);
    }

    /// Calls function(local index, offset in its piece, elements) for the chunks in a slice.
    template <typename Function>
    void for_chunks(Range range, Function function) const {
        for (std::size_t at = range.begin; at < range.end;) {
            const std::size_t offset = at % size_;
            const std::size_t size = std::min(size_ - offset, range.end - at);
            function(at / size_, offset, size);
            at += size;
        }
    }

    void reduce_across() {
        if (!context_.topology.own_carries()) return;
        const bool opening = context_.is_leader() && first_ == 0;  // this exchange is also the comparison
        ScatterStream stream(context_, *this, reduction_.accumulator_bytes, opening, step_);
        context_.links->exchange(operation_, stream.ranks(), stream);
        step_ = stream.next_step();
    }

    std::size_t size(std::size_t node) const override { return slice(node).size(); }

    const std::byte* sums(std::size_t node, Range range, std::byte* memory) const override {
        const Range whole = slice(node);
        const bool elements =
            node_.ranks.size() == 1 && reduction_.accumulator_bytes == width_;  // inputs are sums already
        std::byte* to = memory;
        const std::byte* result = memory;
        for_chunks({whole.begin + range.begin, whole.begin + range.end},
                   [&](std::size_t index, std::size_t offset, std::size_t size) {
                       const auto from = sources(context_.topology.nodes[node][index], offset);
                       if (elements && size == range.size()) {
                           result = static_cast<const std::byte*>(from.front());
                           return;
                       }
                       reduction_.reduce(from.data(), from.size(), size, to);
                       to += size * reduction_.accumulator_bytes;
                   });
        node_.wait.check_read(operation_);
        return result;
    }

    /// Adds up and stores to the outputs.
    void store(Range range, std::span<const void* const> sums, std::byte* memory) const override {
        const Range whole = slice(static_cast<std::size_t>(context_.topology.own_node));
        reduction_.combine(sums.data(), sums.size(), range.size(), memory);
        const std::byte* from = memory;
        for_chunks({whole.begin + range.begin, whole.begin + range.end},
                   [&](std::size_t index, std::size_t offset, std::size_t size) {
                       reduction_.finish(from, size, scale_, output(static_cast<int>(index)) + offset * width_);
                       from += size * reduction_.accumulator_bytes;
                   });
    }

    bool output_is_staged(int index) const {
        return node_.ranks.size() > 1 && node_.meetings.is_foreign(index, Side::kOutput);
    }

    /// Returns the address of the current piece of a local rank's output, which may be in its slot.
    std::byte* output(int index) const {
        if (output_is_staged(index)) return node_.ranks.staging(index) + kHalfSlot;
        if (index == node_.ranks.own_index()) return own_.output.data + first_ * width_;
        return node_.meetings.buffer(index, Side::kOutput) + first_ * width_;
    }

    const CollectiveContext& context_;
    Node& node_;
    const Operation& operation_;
    const OwnBuffers& own_;
    const Reduction& reduction_;
    const std::size_t width_;
    const std::size_t count_;  ///< elements of a chunk
    const bool stages_own_;
    double scale_ = 1;
    std::uint32_t step_ = 0;
    std::size_t piece_ = 1;
    std::size_t first_ = 0;  ///< first element of the current piece of each chunk
    std::size_t size_ = 0;
};

}  // namespace

void reduce_scatter(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own) {
    ReduceScatter(context, operation, own).run();
}

}  // namespace ddp::detail

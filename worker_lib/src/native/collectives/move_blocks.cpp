// The collectives that only move data: all-gather, gather, scatter, all-to-all. Every rank fetches its blocks from its
// neighbours' inputs. Between nodes the carriers exchange blocks pairwise, each with its counterpart on every other
// node at once. The blocks from one node to another are assigned to the carriers round-robin. Each carrier sends its
// own to its counterpart's inbox, from which the ranks of that node fetch them. A block for all ranks is sent to each
// node once.
//
// Large blocks move in rounds, a piece of every block in each, so that all ranks are busy in all rounds. If every node
// has a single rank there is one round, and blocks are received directly in the output.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "worker_lib/src/native/collectives/block_plan.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"

namespace ddp::detail {

namespace {

enum class Sources { kAnnounced, kAllStaged };

/// One such operation, of one rank. It has 15 members because its functions share the arguments and the plan of the
/// rank.
class Mover {
public:
    Mover(const CollectiveContext& context, const Operation& operation, const BlockPlan& plan, const OwnBuffer& input,
          std::byte* output, Sources sources)
        : context_(context),
          node_(context.node),
          operation_(operation),
          plan_(plan),
          input_(input),
          output_(output),
          sources_(sources),
          whole_(context.nodes() > 1 && context.topology.has_one_rank_each()),
          stages_own_(node_.ranks.size() > 1 && (sources == Sources::kAllStaged || input.is_foreign())) {
        const auto& local = context.topology.local();
        const int self = node_.ranks.rank_at(node_.ranks.own_index());
        std::vector<int> all(static_cast<std::size_t>(context.topology.ranks()));
        std::iota(all.begin(), all.end(), 0);
        given_ = plan.between(std::span(&self, 1), all);
        fetched_ = plan.between(local, std::span(&self, 1));
        for (const auto& ranks : context.topology.nodes) {
            leaving_.push_back(plan.between(local, ranks));
            arriving_.push_back(plan.between(ranks, local));
        }
    }

    [[nodiscard]] bool gives_anything() const { return !given_.empty(); }

    /// Stages the first pieces. Before Meetings::meet(), which publishes them to the neighbours.
    void stage_first() {
        choose_piece(true);
        if (stages_own_) stage();
    }

    /// Moves all blocks. After Meetings::meet(). `step` counts the exchanges of the operation.
    void run(std::uint32_t& step, bool first_is_staged) {
        const bool staged = node_.ranks.size() > 1 && any_staged();
        choose_piece(staged);
        const std::size_t rounds = std::max<std::size_t>(1, (plan_.largest() + piece_ - 1) / piece_);
        for (round_ = 0; round_ < rounds; ++round_) {
            if (staged && (round_ > 0 || !first_is_staged)) {
                if (stages_own_) stage();
                node_.barrier.arrive_and_wait(operation_);
            }
            if (context_.nodes() > 1) exchange(step++);
            for (const Block& block : fetched_) fetch(block, source(block));
            if (context_.nodes() > 1 && !whole_) {
                node_.barrier.arrive_and_wait(operation_);
                empty_inboxes();
            }
            if (staged || context_.nodes() > 1 || round_ + 1 == rounds) node_.barrier.arrive_and_wait(operation_);
        }
    }

private:
    bool any_staged() const { return sources_ == Sources::kAllStaged || node_.meetings.any_foreign(Side::kInput); }

    /// Chooses how many bytes of a block move in a round. Between nodes all ranks choose the same, whether they stage
    /// or not.
    void choose_piece(bool staged) {
        piece_ = std::max<std::size_t>(1, plan_.largest());
        if (whole_) return;
        if (context_.nodes() == 1) {
            if (staged) piece_ = std::clamp<std::size_t>(kLocalPieceBytes / plan_.slots(), 1, piece_);
            return;
        }
        std::size_t max_pieces = plan_.slots();  // in half a slot
        const auto& nodes = context_.topology.nodes;
        for (std::size_t to = 0; to < nodes.size(); ++to) {
            std::size_t in_inbox = 0;
            for (std::size_t from = 0; from < nodes.size(); ++from) {
                if (from == to) continue;
                const std::size_t blocks = plan_.max_between(nodes[from].size(), nodes[to].size());
                in_inbox += (blocks + carriers() - 1) / carriers();
            }
            max_pieces = std::max(max_pieces, in_inbox);
        }
        piece_ = std::clamp<std::size_t>(kHalfSlot / max_pieces, 1, piece_);
    }

    std::size_t carriers() const { return static_cast<std::size_t>(context_.topology.carriers); }

    std::size_t done() const { return round_ * piece_; }
    std::size_t size_of_piece(const Block& block) const {
        return block.bytes <= done() ? 0 : std::min(piece_, block.bytes - done());
    }

    void stage() const {
        std::byte* const slot = node_.ranks.staging(node_.ranks.own_index());
        for (const Block& block : given_) {
            input_.copy_out_to(slot + block.slot * piece_, block.from + done(), size_of_piece(block));
        }
    }

    int index_of(int rank) const {
        const auto& local = context_.topology.local();
        return static_cast<int>(std::ranges::find(local, rank) - local.begin());
    }

    bool is_staged(int index) const {
        return sources_ == Sources::kAllStaged || node_.meetings.is_foreign(index, Side::kInput);
    }

    /// Returns the address of the current piece of a block of this node.
    const std::byte* source(const Block& block) const {
        const int index = index_of(block.source);
        if (index == node_.ranks.own_index()) return input_.data + block.from + done();
        if (is_staged(index)) return node_.ranks.staging(index) + block.slot * piece_;
        return node_.meetings.buffer(index, Side::kInput) + block.from + done();
    }

    /// Returns the owner of that memory. A slot counts as own memory, because no program writes to it.
    Owner owner(const Block& block) const {
        const int index = index_of(block.source);
        return index == node_.ranks.own_index() || is_staged(index) ? Owner::kSelf : Owner::kNeighbour;
    }

    void fetch(const Block& block, const std::byte* from) const {
        const std::size_t size = size_of_piece(block);
        std::byte* const to = output_ + block.to + done();
        if (size > 0 && to != from) std::memcpy(to, from, size);  // equal: the own block, in place
    }

    /// Returns the local index of the ranks that carry block number `i` between two nodes.
    std::size_t carrier_of(std::size_t i) const { return i % carriers(); }

    /// Calls function(node, block, carrier, offset in that carrier's inbox) for every block from other nodes.
    template <typename Function>
    void for_arrivals(Function function) const {
        std::vector<std::size_t> filled(carriers());
        for (std::size_t node = 0; node < context_.nodes(); ++node) {
            if (static_cast<int>(node) == context_.topology.own_node) continue;
            for (std::size_t i = 0; i < arriving_[node].size(); ++i) {
                const Block& block = arriving_[node][i];
                std::size_t& offset = filled[carrier_of(i)];
                function(node, block, carrier_of(i), offset);
                offset += size_of_piece(block);
            }
        }
    }

    std::byte* inbox(std::size_t carrier) const { return node_.ranks.staging(static_cast<int>(carrier)) + kHalfSlot; }

    void exchange(std::uint32_t step) {
        if (!context_.topology.own_carries()) return;
        const auto self = static_cast<std::size_t>(node_.ranks.own_index());
        std::vector<std::span<std::byte>> arriving(context_.nodes());
        for_arrivals([&](std::size_t node, const Block& block, std::size_t carrier, std::size_t offset) {
            if (carrier != self) return;
            auto& message = arriving[node];
            if (whole_) {
                message = {output_ + block.to, block.bytes};
                return;
            }
            const std::size_t size = message.size() + size_of_piece(block);
            message = {message.empty() ? inbox(self) + offset : message.data(), size};
        });
        const bool opening = context_.is_leader() && step == 0;  // this exchange is also the comparison
        const bool later = step > 0 && context_.nodes() > 2;     // the peer may wait for a third in an earlier round
        const auto leaving = pack();
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for (std::size_t node = 0; node < context_.nodes(); ++node) {
            if (static_cast<int>(node) == context_.topology.own_node) continue;
            const int peer = context_.topology.counterpart(static_cast<int>(node));
            const auto& [bytes, owner] = leaving[node];
            if (opening || !bytes.empty()) out.push_back({peer, bytes, later && !is_scatter(), owner});
            if (opening || !arriving[node].empty()) in.push_back({peer, arriving[node], later && !is_gather()});
        }
        context_.links->exchange(operation_, step, out, in);
    }

    /// A rank that only sends to the root, or only receives from it, waits for no third rank.
    bool is_gather() const { return operation_.kind == OpKind::kGather || operation_.kind == OpKind::kGatherV; }
    bool is_scatter() const { return operation_.kind == OpKind::kScatter || operation_.kind == OpKind::kScatterV; }

    /// Bytes of a message, and the owner of their memory.
    struct Piece {
        std::span<const std::byte> bytes;
        Owner owner = Owner::kSelf;
    };

    /// Returns this carrier's message to each node. Several pieces are copied together; a single one is sent from its
    /// source.
    std::vector<Piece> pack() const {
        std::vector<Piece> messages(context_.nodes());
        std::vector<std::vector<Piece>> pieces(context_.nodes());
        std::size_t total = 0;  // of those that are copied
        for (std::size_t node = 0; node < context_.nodes(); ++node) {
            if (static_cast<int>(node) == context_.topology.own_node) continue;
            std::size_t to_node = 0;
            for (std::size_t i = static_cast<std::size_t>(node_.ranks.own_index()); i < leaving_[node].size();
                 i += carriers()) {
                const Block& block = leaving_[node][i];
                const std::size_t size = size_of_piece(block);
                if (size > 0) pieces[node].push_back({{source(block), size}, owner(block)});
                to_node += size;
            }
            if (pieces[node].size() > 1) total += to_node;
        }
        auto free = context_.scratch.sums.first(total);
        for (std::size_t node = 0; node < context_.nodes(); ++node) {
            if (pieces[node].size() == 1) messages[node] = pieces[node].front();
            if (pieces[node].size() < 2) continue;
            std::size_t size = 0;
            for (const auto& [bytes, owner] : pieces[node]) {
                std::memcpy(free.data() + size, bytes.data(), bytes.size());
                size += bytes.size();
            }
            messages[node].bytes = free.first(size);
            free = free.subspan(size);
        }
        node_.wait.check_read(operation_);
        return messages;
    }

    /// Fetches the blocks of this rank from the inboxes of all carriers.
    void empty_inboxes() const {
        const int self = node_.ranks.rank_at(node_.ranks.own_index());
        for_arrivals([&](std::size_t, const Block& block, std::size_t carrier, std::size_t offset) {
            if (block.destination == self || block.destination == Block::kAllRanks)
                fetch(block, inbox(carrier) + offset);
        });
    }

    const CollectiveContext& context_;
    Node& node_;
    const Operation& operation_;
    const BlockPlan& plan_;
    const OwnBuffer& input_;
    std::byte* const output_;
    const Sources sources_;
    const bool whole_;
    const bool stages_own_;
    std::size_t piece_ = 1;
    std::size_t round_ = 0;
    std::vector<Block> given_;                  ///< from this rank
    std::vector<Block> fetched_;                ///< to this rank from its node
    std::vector<std::vector<Block>> leaving_;   ///< by destination node
    std::vector<std::vector<Block>> arriving_;  ///< by source node
};

/// Gathers how many elements each rank gives to each, by [source * ranks + destination], on every rank. Throws Mismatch
/// if that differs from the counts that this rank expects to receive.
std::vector<std::uint64_t> agree_on_counts(const CollectiveContext& context, const Operation& operation,
                                           std::uint32_t& step) {
    const auto ranks = static_cast<std::size_t>(context.topology.ranks());
    std::vector<std::uint64_t> own(operation.counts.begin(), operation.counts.end());
    std::vector<std::uint64_t> all(ranks * ranks);
    const BlockPlan plan = BlockPlan::all_gather(ranks * sizeof(std::uint64_t), context.topology.ranks());
    const OwnBuffer row{.data = reinterpret_cast<std::byte*>(own.data()),
                        .bytes = ranks * sizeof(std::uint64_t),
                        .heap_offset = std::nullopt};
    Mover(context, operation, plan, row, reinterpret_cast<std::byte*>(all.data()), Sources::kAllStaged)
        .run(step, false);

    const int self = context.node.ranks.rank_at(context.node.ranks.own_index());
    for (std::size_t source = 0; source < ranks; ++source) {
        const std::uint64_t sent = all[source * ranks + static_cast<std::size_t>(self)];
        if (sent == operation.receive_counts[source]) continue;
        const int sender = static_cast<int>(source);
        throw FailureError({.code = ErrorCode::Mismatch,
                            .cause = fmt::format("{}: {} sends {} elements to {}, which expects {}: the send_counts of "
                                                 "the one must have what the receive_counts of the other have",
                                                 describe(operation), name_of(sender, context.members), sent,
                                                 name_of(self, context.members), operation.receive_counts[source])},
                           context.node.ranks.group(), context.node.ranks.self());
    }
    return all;
}

}  // namespace

void move_blocks(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own) {
    // Outputs are announced as kNone, because only their owners write to them.
    std::uint32_t step = 0;
    if (operation.kind == OpKind::kAllToAllV) {
        context.node.meetings.meet(operation, {.input = own.input.offset(), .output = BufferOffsets::kNone});
        const auto sends = agree_on_counts(context, operation, step);
        const auto plan = BlockPlan::all_to_all(sends, context.topology.ranks(), size_of(operation.buffer.dtype));
        Mover(context, operation, plan, own.input, own.output.data, Sources::kAnnounced).run(step, false);
        return;
    }
    const BlockPlan plan(operation, context.topology.ranks());
    Mover mover(context, operation, plan, own.input, own.output.data, Sources::kAnnounced);
    mover.stage_first();
    const std::uint64_t input = mover.gives_anything() ? own.input.offset() : BufferOffsets::kNone;
    context.node.meetings.meet(operation, {.input = input, .output = BufferOffsets::kNone});
    mover.run(step, true);
}

}  // namespace ddp::detail

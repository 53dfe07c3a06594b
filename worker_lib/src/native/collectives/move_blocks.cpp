// The collectives that only move data: every rank fetches its blocks from its neighbours' inputs. Between nodes the
// blocks from one node to another are dealt out to the carriers in turn; each sends its own to its counterpart's inbox,
// from which the ranks of that node fetch them. A block that everybody gets travels to each node once.
//
// Large blocks move in rounds, a piece of every block in each, so that all ranks are busy in all rounds. Where every
// node is a single rank there is one round, and blocks arrive where they belong.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "worker_lib/src/native/block_plan.hpp"
#include "worker_lib/src/native/collectives.hpp"

namespace ddp::detail {

namespace {

/// A staging slot holds pieces of its owner's input in its first half, and of other nodes' blocks in the second.
constexpr std::size_t kHalf = kStagingBytes / 2;

enum class Sources { kAnnounced, kAllStaged };

class Mover {
public:
    Mover(const Team& team, const Operation& operation, const BlockPlan& plan, const OwnBuffer& input,
          std::byte* output, Sources sources)
        : team_(team),
          node_(team.node),
          operation_(operation),
          plan_(plan),
          input_(input),
          output_(output),
          sources_(sources),
          whole_(team.nodes() > 1 && team.topology.has_one_rank_each()),
          stages_own_(node_.size() > 1 && (sources == Sources::kAllStaged || input.is_foreign())) {
        const auto& local = team.topology.local();
        const int self = node_.rank_at(node_.own_index());
        std::vector<int> everybody(static_cast<std::size_t>(team.topology.ranks()));
        std::iota(everybody.begin(), everybody.end(), 0);
        given_ = plan.between(std::span(&self, 1), everybody);
        fetched_ = plan.between(local, std::span(&self, 1));
        for (const auto& ranks : team.topology.nodes) {
            leaving_.push_back(plan.between(local, ranks));
            coming_.push_back(plan.between(ranks, local));
        }
    }

    [[nodiscard]] bool gives_anything() const { return !given_.empty(); }

    /// Puts the first pieces into the own slot: before Node::meet(), which then tells the neighbours that they are
    /// there.
    void stage_first() {
        choose_piece(true);
        if (stages_own_) stage();
    }

    /// After Node::meet(). `step` counts the exchanges of the operation.
    void run(std::uint32_t& step, bool first_is_staged) {
        const bool staged = node_.size() > 1 && any_staged();
        choose_piece(staged);
        const std::size_t rounds = std::max<std::size_t>(1, (plan_.largest() + piece_ - 1) / piece_);
        for (round_ = 0; round_ < rounds; ++round_) {
            if (staged && (round_ > 0 || !first_is_staged)) {
                if (stages_own_) stage();
                node_.barrier(operation_);
            }
            if (team_.nodes() > 1) exchange(step++);
            for (const Block& block : fetched_) fetch(block, source(block));
            if (team_.nodes() > 1 && !whole_) {
                node_.barrier(operation_);
                empty_inboxes();
            }
            if (staged || team_.nodes() > 1 || round_ + 1 == rounds) node_.barrier(operation_);
        }
    }

private:
    bool any_staged() const { return sources_ == Sources::kAllStaged || node_.any_foreign(Side::kInput); }

    /// Bytes of a block that move in a round. Between nodes all ranks must agree, whether they stage or not.
    void choose_piece(bool staged) {
        piece_ = std::max<std::size_t>(1, plan_.largest());
        if (whole_) return;
        if (team_.nodes() == 1) {
            if (staged) piece_ = std::clamp<std::size_t>(kLocalPieceBytes / plan_.slots(), 1, piece_);
            return;
        }
        std::size_t most = plan_.slots();  // pieces in half a slot
        const auto& nodes = team_.topology.nodes;
        for (std::size_t to = 0; to < nodes.size(); ++to) {
            std::size_t in_inbox = 0;
            for (std::size_t from = 0; from < nodes.size(); ++from) {
                if (from == to) continue;
                const std::size_t blocks = plan_.most_between(nodes[from].size(), nodes[to].size());
                in_inbox += (blocks + carriers() - 1) / carriers();
            }
            most = std::max(most, in_inbox);
        }
        piece_ = std::clamp<std::size_t>(kHalf / most, 1, piece_);
    }

    std::size_t carriers() const { return static_cast<std::size_t>(team_.topology.carriers); }

    std::size_t done() const { return round_ * piece_; }
    std::size_t size_of_piece(const Block& block) const {
        return block.bytes <= done() ? 0 : std::min(piece_, block.bytes - done());
    }

    void stage() const {
        std::byte* const slot = node_.staging(node_.own_index());
        for (const Block& block : given_) {
            input_.copy_out_to(slot + block.slot * piece_, block.from + done(), size_of_piece(block));
        }
    }

    int index_of(int rank) const {
        const auto& local = team_.topology.local();
        return static_cast<int>(std::ranges::find(local, rank) - local.begin());
    }

    bool is_staged(int index) const { return sources_ == Sources::kAllStaged || node_.is_foreign(index, Side::kInput); }

    /// Where the current piece of a block of this node lies.
    const std::byte* source(const Block& block) const {
        const int index = index_of(block.source);
        if (index == node_.own_index()) return input_.data + block.from + done();
        if (is_staged(index)) return node_.staging(index) + block.slot * piece_;
        return node_.buffer(index, Side::kInput) + block.from + done();
    }

    /// Of that memory. A slot is as good as our own: no program writes to it.
    Owner owner(const Block& block) const {
        const int index = index_of(block.source);
        return index == node_.own_index() || is_staged(index) ? Owner::kSelf : Owner::kNeighbour;
    }

    void fetch(const Block& block, const std::byte* from) const {
        const std::size_t size = size_of_piece(block);
        std::byte* const to = output_ + block.to + done();
        if (size > 0 && to != from) std::memcpy(to, from, size);  // the same place: the own block, in place
    }

    /// Block number `i` between two nodes is carried by the ranks of this local index.
    std::size_t carrier_of(std::size_t i) const { return i % carriers(); }

    /// Calls function(node, block, carrier, offset in that carrier's inbox) for all that comes from other nodes.
    template <typename Function>
    void for_arrivals(Function function) const {
        std::vector<std::size_t> filled(carriers());
        for (std::size_t node = 0; node < team_.nodes(); ++node) {
            if (static_cast<int>(node) == team_.topology.own_node) continue;
            for (std::size_t i = 0; i < coming_[node].size(); ++i) {
                const Block& block = coming_[node][i];
                std::size_t& offset = filled[carrier_of(i)];
                function(node, block, carrier_of(i), offset);
                offset += size_of_piece(block);
            }
        }
    }

    std::byte* inbox(std::size_t carrier) const { return node_.staging(static_cast<int>(carrier)) + kHalf; }

    void exchange(std::uint32_t step) {
        if (!team_.topology.own_carries()) return;
        const auto self = static_cast<std::size_t>(node_.own_index());
        std::vector<std::span<std::byte>> arriving(team_.nodes());
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
        const bool opening = team_.is_leader() && step == 0;  // this exchange is also the comparison
        const bool later = step > 0 && team_.nodes() > 2;     // the peer may wait for a third in a round before
        const auto leaving = pack();
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for (std::size_t node = 0; node < team_.nodes(); ++node) {
            if (static_cast<int>(node) == team_.topology.own_node) continue;
            const int peer = team_.topology.counterpart(static_cast<int>(node));
            const auto& [bytes, owner] = leaving[node];
            if (opening || !bytes.empty()) out.push_back({peer, bytes, later && !is_scatter(), owner});
            if (opening || !arriving[node].empty()) in.push_back({peer, arriving[node], later && !is_gather()});
        }
        team_.links->exchange(operation_, step, out, in);
    }

    /// Those who only send to the root, or receive from it, wait for nobody else.
    bool is_gather() const { return operation_.kind == OpKind::kGather || operation_.kind == OpKind::kGatherV; }
    bool is_scatter() const { return operation_.kind == OpKind::kScatter || operation_.kind == OpKind::kScatterV; }

    struct Piece {
        std::span<const std::byte> bytes;
        Owner owner = Owner::kSelf;
    };

    /// The pieces that this carrier sends to each node. A single one is sent from where it is.
    std::vector<Piece> pack() const {
        std::vector<Piece> messages(team_.nodes());
        std::vector<std::vector<Piece>> pieces(team_.nodes());
        std::size_t total = 0;  // of those that are put together
        for (std::size_t node = 0; node < team_.nodes(); ++node) {
            if (static_cast<int>(node) == team_.topology.own_node) continue;
            std::size_t to_node = 0;
            for (std::size_t i = static_cast<std::size_t>(node_.own_index()); i < leaving_[node].size();
                 i += carriers()) {
                const Block& block = leaving_[node][i];
                const std::size_t size = size_of_piece(block);
                if (size > 0) pieces[node].push_back({{source(block), size}, owner(block)});
                to_node += size;
            }
            if (pieces[node].size() > 1) total += to_node;
        }
        auto free = team_.scratch.sums.first(total);
        for (std::size_t node = 0; node < team_.nodes(); ++node) {
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
        node_.check_read(operation_);
        return messages;
    }

    void empty_inboxes() const {
        const int self = node_.rank_at(node_.own_index());
        for_arrivals([&](std::size_t, const Block& block, std::size_t carrier, std::size_t offset) {
            if (block.destination == self || block.destination == Block::kEverybody)
                fetch(block, inbox(carrier) + offset);
        });
    }

    const Team& team_;
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
    std::vector<Block> given_;                 ///< by us to anybody
    std::vector<Block> fetched_;               ///< by us from our node
    std::vector<std::vector<Block>> leaving_;  ///< by node to which
    std::vector<std::vector<Block>> coming_;   ///< by node from which
};

/// Every rank learns how many elements each gives to each, by [source * ranks + destination]; what we expect must be in
/// it.
std::vector<std::uint64_t> agree_on_counts(const Team& team, const Operation& operation, std::uint32_t& step) {
    const auto ranks = static_cast<std::size_t>(team.topology.ranks());
    std::vector<std::uint64_t> own(operation.counts.begin(), operation.counts.end());
    std::vector<std::uint64_t> all(ranks * ranks);
    const BlockPlan plan = BlockPlan::all_gather(ranks * sizeof(std::uint64_t), team.topology.ranks());
    const OwnBuffer row{.data = reinterpret_cast<std::byte*>(own.data()),
                        .bytes = ranks * sizeof(std::uint64_t),
                        .heap_offset = std::nullopt};
    Mover(team, operation, plan, row, reinterpret_cast<std::byte*>(all.data()), Sources::kAllStaged).run(step, false);

    const int self = team.node.rank_at(team.node.own_index());
    for (std::size_t source = 0; source < ranks; ++source) {
        const std::uint64_t sent = all[source * ranks + static_cast<std::size_t>(self)];
        if (sent == operation.receive_counts[source]) continue;
        const int sender = static_cast<int>(source);
        throw Error(ErrorCode::Mismatch,
                    fmt::format("group '{}': {}: {} sends {} elements to {}, which expects {}", team.node.group(),
                                describe(operation), name_of(sender, team.members), sent, name_of(self, team.members),
                                operation.receive_counts[source]));
    }
    return all;
}

}  // namespace

void move_blocks(const Team& team, const Operation& operation, const OwnBuffers& own) {
    // Outputs are written by their owners alone.
    std::uint32_t step = 0;
    if (operation.kind == OpKind::kAllToAllV) {
        team.node.meet(operation, {.input = own.input.place(), .output = Places::kNone});
        const auto sends = agree_on_counts(team, operation, step);
        const auto plan = BlockPlan::all_to_all(sends, team.topology.ranks(), size_of(operation.buffer.dtype));
        Mover(team, operation, plan, own.input, own.output.data, Sources::kAnnounced).run(step, false);
        return;
    }
    const BlockPlan plan(operation, team.topology.ranks());
    Mover mover(team, operation, plan, own.input, own.output.data, Sources::kAnnounced);
    mover.stage_first();
    const std::uint64_t place = mover.gives_anything() ? own.input.place() : Places::kNone;
    team.node.meet(operation, {.input = place, .output = Places::kNone});
    mover.run(step, true);
}

}  // namespace ddp::detail

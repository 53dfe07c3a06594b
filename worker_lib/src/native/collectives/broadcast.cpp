// Broadcast, hierarchical. On every node one rank's buffer is the source from which its neighbours copy: the root's on
// its own node, the leader's on the others, once the data has arrived there. Between nodes each carrier, a rank with
// links to other nodes, sends or receives one slice; broadcast_stream.hpp lists the algorithms. With one node, and all
// buffers in arenas, every rank copies a part of the root's buffer to all others.

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "worker_lib/src/native/collectives/broadcast_stream.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/native/collectives/windows.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

namespace {

/// Piece that is staged at a time inside a node. A slot holds two.
constexpr std::size_t kBroadcastPieceBytes = kLocalPieceBytes / 2;
/// Block that is copied to several ranks at a time: it stays in the first-level cache.
constexpr std::size_t kBlockBytes = 16u << 10;

/// One broadcast, of one rank.
class Broadcast {
public:
    Broadcast(const CollectiveContext& context, const Operation& operation, const OwnBuffer& own)
        : context_(context),
          node_(context.node),
          operation_(operation),
          own_(own),
          root_node_(context.topology.node_of(operation.root)),
          at_root_(root_node_ == context.topology.own_node) {
        const auto& local = context.topology.local();
        source_ = at_root_ ? static_cast<int>(std::ranges::find(local, operation.root) - local.begin()) : 0;
    }

    void run() {
        if (context_.nodes() == 1) return run_in_node();
        windows_ = {
            .count = own_.bytes,
            .max_elements = context_.topology.has_one_rank_each() ? std::max<std::size_t>(1, own_.bytes) : kWindowBytes,
            .carriers = static_cast<std::size_t>(context_.topology.carriers),
            .carrier = static_cast<std::size_t>(node_.ranks.own_index()),
            .grain = kSeparation};
        if (at_root_) stage(windows_.window(0));
        node_.meetings.meet(operation_, {.input = own_.offset(), .output = own_.offset()});
        at_root_ ? give() : take();
    }

private:
    bool is_source() const { return node_.ranks.own_index() == source_; }
    /// Returns whether the source's buffer passes through its slot. After Meetings::meet().
    bool staged() const { return node_.ranks.size() > 1 && node_.meetings.is_foreign(source_, Side::kInput); }

    /// Returns the address of byte `at` of the source's buffer while its window is current.
    std::byte* address_of(std::size_t at) const {
        if (node_.ranks.size() == 1) return own_.data + at;
        return staged() ? node_.ranks.staging(source_) + at % kStagingBytes
                        : node_.meetings.buffer(source_, Side::kInput) + at;
    }

    /// Returns the owner of that memory. A slot counts as own memory, because no program writes to it.
    Owner owner() const { return is_source() || staged() ? Owner::kSelf : Owner::kNeighbour; }

    void stage(Range window) const {
        if (!is_source() || node_.ranks.size() == 1 || !own_.is_foreign()) return;
        own_.copy_out_to(node_.ranks.staging(source_) + window.begin % kStagingBytes, window.begin, window.size());
    }

    void copy(Range window) const {
        if (!is_source() || (staged() && !at_root_))
            own_.copy_in_from(address_of(window.begin), window.begin, window.size());
    }

    /// Sends from the root's node. The slot holds two windows: one is sent while the next is staged.
    void give() {
        const std::size_t windows = windows_.number();
        if (staged() && windows > 1) {
            stage(windows_.window(1));
            node_.barrier.arrive_and_wait(operation_);
        }
        for (std::size_t now = 0; now < windows; ++now) {
            pass(staged() ? std::min(windows, now + 2) : windows, now + 1);
            copy(windows_.window(now));
            if (!staged() && now + 1 < windows) continue;
            node_.barrier.arrive_and_wait(operation_);  // until here the source's slot or buffer may be read
            if (now + 2 >= windows) continue;
            stage(windows_.window(now + 2));
            node_.barrier.arrive_and_wait(operation_);
        }
    }

    /// Receives on the other nodes.
    void take() {
        const std::size_t windows = windows_.number();
        for (std::size_t now = 0; now < windows; ++now) {
            pass(staged() ? std::min(windows, now + 2) : windows, now + 1);
            node_.barrier.arrive_and_wait(operation_);  // all carriers have received their slices
            copy(windows_.window(now));
            if (staged() || now + 1 == windows) node_.barrier.arrive_and_wait(operation_);
        }
    }

    /// Copies a piece of the root's buffer to `offset` in its slot.
    void stage_piece(std::size_t first, std::size_t size, std::size_t offset) const {
        own_.copy_out_to(node_.ranks.staging(source_) + offset, first, size);
    }

    void run_in_node() const {
        const bool stages = is_source() && own_.is_foreign() && node_.ranks.size() > 1;
        if (stages) stage_piece(0, std::min(own_.bytes, kBroadcastPieceBytes), 0);
        node_.meetings.meet(operation_, {.input = own_.offset(), .output = own_.offset()});
        if (!node_.meetings.any_foreign(Side::kOutput)) {
            copy_own_part();
            return node_.barrier.arrive_and_wait(operation_);
        }
        if (!node_.meetings.is_foreign(source_, Side::kInput)) {
            if (!is_source()) own_.copy_in_from(node_.meetings.buffer(source_, Side::kInput), 0, own_.bytes);
            return node_.barrier.arrive_and_wait(operation_);
        }
        // The root stages a piece while the others copy the one before it.
        for (std::size_t first = 0, number = 0; first < own_.bytes; first += kBroadcastPieceBytes, ++number) {
            const std::size_t size = std::min(kBroadcastPieceBytes, own_.bytes - first);
            const std::size_t next = first + size;
            if (stages && next < own_.bytes)
                stage_piece(next, std::min(kBroadcastPieceBytes, own_.bytes - next),
                            (number + 1) % 2 * kBroadcastPieceBytes);
            if (!is_source())
                own_.copy_in_from(node_.ranks.staging(source_) + number % 2 * kBroadcastPieceBytes, first, size);
            node_.barrier.arrive_and_wait(operation_);
        }
    }

    /// Copies the own part of the root's buffer to all ranks. Every rank does so, because one core alone cannot use all
    /// of the memory's bandwidth.
    void copy_own_part() const {
        const Range mine = part(own_.bytes, static_cast<std::size_t>(node_.ranks.size()),
                                static_cast<std::size_t>(node_.ranks.own_index()), kSeparation);
        const std::byte* const from = node_.meetings.buffer(source_, Side::kInput);
        for (std::size_t at = mine.begin; at < mine.end; at += kBlockBytes) {
            const std::size_t size = std::min(kBlockBytes, mine.end - at);
            for (int i = 0; i < node_.ranks.size(); ++i) {
                if (i != source_) std::memcpy(node_.meetings.buffer(i, Side::kOutput) + at, from + at, size);
            }
        }
    }

    /// Moves the own slices of the windows before `end` from the root's node to the others. May begin those before
    /// `open`.
    void pass(std::size_t open, std::size_t end) {
        if (!context_.topology.own_carries() || (windows_.nothing() && !context_.is_leader())) return;
        const BroadcastAlgorithm algorithm = choose_broadcast(context_.nodes(), own_.bytes);
        if (algorithm == BroadcastAlgorithm::kTree) {
            for (; passed_ < end; ++passed_) pass_down(windows_.slice(passed_));
            return;
        }
        if (!stream_) {
            stream_.emplace(
                context_.topology, root_node_, algorithm, windows_, context_.is_leader(),
                [this](std::size_t at) { return address_of(at); }, owner());
            context_.links->begin(operation_, stream_->ranks());
        }
        stream_->go_on(open, end);
        context_.links->go_on(operation_, *stream_);
    }

    /// Sends a slice down a binomial tree (Thakur, Rabenseifner, Gropp 2005): in each step every node that has it sends
    /// it to one that has not, counted from the root. The other nodes exchange empty messages in the same pattern,
    /// which is that of a dissemination barrier (Hensgen, Finkel, Manber 1988), so every node is compared with every
    /// other.
    void pass_down(Range slice) {
        if (slice.empty() && !(context_.is_leader() && passed_ == 0)) return;
        const std::span<std::byte> bytes(address_of(slice.begin), slice.size());
        const auto nodes = static_cast<int>(context_.nodes());
        const int own = context_.topology.own_node;
        const int position = (own - root_node_ + nodes) % nodes;  // in the tree
        for (int have = 1; have < nodes; have *= 2) {
            const bool gives = position < have && position + have < nodes;
            const bool gets = position >= have && position < 2 * have;
            const bool later = have > 1;  // the peer may still wait in an earlier step
            const OutMessage out{context_.topology.counterpart((own + have) % nodes), gives ? bytes : bytes.first(0),
                                 later, owner()};
            const InMessage in{context_.topology.counterpart((own - have + nodes) % nodes),
                               gets ? bytes : bytes.first(0), later};
            context_.links->exchange(operation_, step_++, std::span(&out, 1), std::span(&in, 1));
        }
    }

    const CollectiveContext& context_;
    Node& node_;
    const Operation& operation_;
    const OwnBuffer& own_;
    const int root_node_;
    const bool at_root_;
    int source_ = 0;  ///< local index
    Windows windows_;
    std::optional<BroadcastStream> stream_;
    std::size_t passed_ = 0;  ///< windows, by kTree
    std::uint32_t step_ = 0;
};

}  // namespace

void broadcast(const CollectiveContext& context, const Operation& operation, const OwnBuffer& own) {
    Broadcast(context, operation, own).run();
}

}  // namespace ddp::detail

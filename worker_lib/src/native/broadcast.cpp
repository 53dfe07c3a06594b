// Broadcast. On every node one rank's buffer is the source from which the others copy: the root's on its own node, the
// leader's on the others, once it has come there. Each rank that talks to other nodes carries a slice of it. With one
// node and all buffers in arenas all ranks share the copying.

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "worker_lib/src/native/broadcast_stream.hpp"
#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/windows.hpp"

namespace ddp::detail {

namespace {

/// Inside a node: what is staged at a time, two of which are in a slot.
constexpr std::size_t kPieceBytes = kLocalPieceBytes / 2;
/// What is copied to several ranks at a time: it stays in the first-level cache.
constexpr std::size_t kBlockBytes = 16u << 10;

class Broadcast {
public:
    Broadcast(const Team& team, const Operation& operation, const OwnBuffer& own)
        : team_(team),
          node_(team.node),
          operation_(operation),
          own_(own),
          root_node_(team.topology.node_of(operation.root)),
          at_root_(root_node_ == team.topology.own_node) {
        const auto& local = team.topology.local();
        source_ = at_root_ ? static_cast<int>(std::ranges::find(local, operation.root) - local.begin()) : 0;
    }

    void run() {
        if (team_.nodes() == 1) return run_in_node();
        windows_ = {.count = own_.bytes,
                    .most = team_.topology.has_one_rank_each() ? std::max<std::size_t>(1, own_.bytes) : kWindowBytes,
                    .carriers = static_cast<std::size_t>(team_.topology.carriers),
                    .carrier = static_cast<std::size_t>(node_.own_index()),
                    .grain = kSeparation};
        if (at_root_) stage(windows_.window(0));
        node_.meet(operation_, {.input = own_.place(), .output = own_.place()});
        at_root_ ? give() : take();
    }

private:
    bool is_source() const { return node_.own_index() == source_; }
    /// Whether the source's buffer passes through its slot. After Node::meet().
    bool staged() const { return node_.size() > 1 && node_.is_foreign(source_, Side::kInput); }

    /// Where a byte of the source's buffer is while its window is in hand.
    std::byte* place_of(std::size_t at) const {
        if (node_.size() == 1) return own_.data + at;
        return staged() ? node_.staging(source_) + at % kStagingBytes : node_.buffer(source_, Side::kInput) + at;
    }

    /// Of that place. A slot is as good as our own memory: no program writes to it.
    Owner owner() const { return is_source() || staged() ? Owner::kSelf : Owner::kNeighbour; }

    void stage(Range window) const {
        if (!is_source() || node_.size() == 1 || !own_.is_foreign()) return;
        own_.copy_out_to(node_.staging(source_) + window.begin % kStagingBytes, window.begin, window.size());
    }

    void copy(Range window) const {
        if (!is_source() || (staged() && !at_root_))
            own_.copy_in_from(place_of(window.begin), window.begin, window.size());
    }

    /// On the root's node: two windows are in the slot, so that one passes while the next is staged.
    void give() {
        const std::size_t windows = windows_.number();
        if (staged() && windows > 1) {
            stage(windows_.window(1));
            node_.barrier(operation_);
        }
        for (std::size_t now = 0; now < windows; ++now) {
            pass(staged() ? std::min(windows, now + 2) : windows, now + 1);
            copy(windows_.window(now));
            if (!staged() && now + 1 < windows) continue;
            node_.barrier(operation_);  // until here the source's slot or buffer was being read
            if (now + 2 >= windows) continue;
            stage(windows_.window(now + 2));
            node_.barrier(operation_);
        }
    }

    /// On the others.
    void take() {
        const std::size_t windows = windows_.number();
        for (std::size_t now = 0; now < windows; ++now) {
            pass(staged() ? std::min(windows, now + 2) : windows, now + 1);
            node_.barrier(operation_);  // all carriers' slices have come
            copy(windows_.window(now));
            if (staged() || now + 1 == windows) node_.barrier(operation_);
        }
    }

    /// `offset` in the slot.
    void stage_piece(std::size_t first, std::size_t size, std::size_t offset) const {
        own_.copy_out_to(node_.staging(source_) + offset, first, size);
    }

    void run_in_node() const {
        const bool stages = is_source() && own_.is_foreign() && node_.size() > 1;
        if (stages) stage_piece(0, std::min(own_.bytes, kPieceBytes), 0);
        node_.meet(operation_, {.input = own_.place(), .output = own_.place()});
        if (!node_.any_foreign(Side::kOutput)) {
            share_the_copying();
            return node_.barrier(operation_);
        }
        if (!node_.is_foreign(source_, Side::kInput)) {
            if (!is_source()) own_.copy_in_from(node_.buffer(source_, Side::kInput), 0, own_.bytes);
            return node_.barrier(operation_);
        }
        // The root stages a piece while the others take the one before it.
        for (std::size_t first = 0, number = 0; first < own_.bytes; first += kPieceBytes, ++number) {
            const std::size_t size = std::min(kPieceBytes, own_.bytes - first);
            const std::size_t next = first + size;
            if (stages && next < own_.bytes)
                stage_piece(next, std::min(kPieceBytes, own_.bytes - next), (number + 1) % 2 * kPieceBytes);
            if (!is_source()) own_.copy_in_from(node_.staging(source_) + number % 2 * kPieceBytes, first, size);
            node_.barrier(operation_);
        }
    }

    /// Where all may write to all, every rank copies a part of the root's buffer to everybody: one core alone cannot
    /// use all the memory's bandwidth.
    void share_the_copying() const {
        const Range mine = part(own_.bytes, static_cast<std::size_t>(node_.size()),
                                static_cast<std::size_t>(node_.own_index()), kSeparation);
        const std::byte* const from = node_.buffer(source_, Side::kInput);
        for (std::size_t at = mine.begin; at < mine.end; at += kBlockBytes) {
            const std::size_t size = std::min(kBlockBytes, mine.end - at);
            for (int i = 0; i < node_.size(); ++i) {
                if (i != source_) std::memcpy(node_.buffer(i, Side::kOutput) + at, from + at, size);
            }
        }
    }

    /// Our slices of the windows before `end`, from the root's node to the others. Those before `open` may be begun.
    void pass(std::size_t open, std::size_t end) {
        if (!team_.topology.own_carries() || (windows_.nothing() && !team_.is_leader())) return;
        const BroadcastWay way = choose_broadcast(team_.nodes(), own_.bytes);
        if (way == BroadcastWay::kTree) {
            for (; passed_ < end; ++passed_) pass_down(windows_.slice(passed_));
            return;
        }
        if (!stream_) {
            stream_.emplace(
                team_.topology, root_node_, way, windows_, team_.is_leader(),
                [this](std::size_t at) { return place_of(at); }, owner());
            team_.links->begin(operation_, stream_->ranks());
        }
        stream_->go_on(open, end);
        team_.links->go_on(operation_, *stream_);
    }

    /// By a binomial tree: in each step those who have it send it to as many others, counted from the root. All others
    /// send nothing, but they do send: so every node has heard of every other in the end, and compared.
    void pass_down(Range slice) {
        if (slice.empty() && !(team_.is_leader() && passed_ == 0)) return;
        const std::span<std::byte> bytes(place_of(slice.begin), slice.size());
        const auto nodes = static_cast<int>(team_.nodes());
        const int own = team_.topology.own_node;
        const int place = (own - root_node_ + nodes) % nodes;
        for (int have = 1; have < nodes; have *= 2) {
            const bool gives = place < have && place + have < nodes;
            const bool gets = place >= have && place < 2 * have;
            const bool later = have > 1;  // the peer may wait in a step before
            const OutMessage out{team_.topology.counterpart((own + have) % nodes), gives ? bytes : bytes.first(0),
                                 later, owner()};
            const InMessage in{team_.topology.counterpart((own - have + nodes) % nodes), gets ? bytes : bytes.first(0),
                               later};
            team_.links->exchange(operation_, step_++, std::span(&out, 1), std::span(&in, 1));
        }
    }

    const Team& team_;
    Node& node_;
    const Operation& operation_;
    const OwnBuffer& own_;
    const int root_node_;
    const bool at_root_;
    int source_ = 0;  ///< local index
    Windows windows_;
    std::optional<BroadcastStream> stream_;
    std::size_t passed_ = 0;  ///< windows, down the tree
    std::uint32_t step_ = 0;
};

}  // namespace

void broadcast(const Team& team, const Operation& operation, const OwnBuffer& own) {
    Broadcast(team, operation, own).run();
}

}  // namespace ddp::detail

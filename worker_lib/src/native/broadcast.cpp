// Broadcast. On every node one rank's buffer is the source from which the others copy: the root's on its own node, the
// leader's on the others, once the root's leader has sent it there. With one node and all buffers in arenas all ranks
// share the copying.

#include <algorithm>
#include <cstring>
#include <vector>

#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/partition.hpp"

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
        const bool staging_source = is_source() && own_.is_foreign();
        if (staging_source && at_root_) stage(0, std::min(own_.bytes, kNetworkPieceBytes), 0);
        node_.meet(operation_, {.input = own_.place(), .output = own_.place()});
        const bool staged = node_.is_foreign(source_, Side::kInput);

        std::size_t first = 0;
        do {  // once for no bytes at all, too: the leaders compare what was called
            const std::size_t size = std::min(kNetworkPieceBytes, own_.bytes - first);
            if (first > 0 && staging_source && at_root_) stage(first, size, 0);
            // From the second piece on the peers must be told that it is there; meet() has told them of the first.
            if (at_root_ && first > 0 && staged) node_.barrier(operation_);
            if (team_.is_leader()) pass_between_leaders(first, size);
            if (!at_root_) node_.barrier(operation_);
            copy(first, size);
            // Until here the source's slot or buffer was being read.
            if (staged || first + size == own_.bytes) node_.barrier(operation_);
            first += size;
        } while (first < own_.bytes);
    }

private:
    bool is_source() const { return node_.own_index() == source_; }

    /// `offset` in the slot.
    void stage(std::size_t first, std::size_t size, std::size_t offset) const {
        own_.copy_out_to(node_.staging(source_) + offset, first, size);
    }

    void run_in_node() const {
        const bool stages = is_source() && own_.is_foreign() && node_.size() > 1;
        if (stages) stage(0, std::min(own_.bytes, kPieceBytes), 0);
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
                stage(next, std::min(kPieceBytes, own_.bytes - next), (number + 1) % 2 * kPieceBytes);
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

    void copy(std::size_t first, std::size_t size) const {
        if (is_source() && (at_root_ || !own_.is_foreign())) return;  // it is in place already
        own_.copy_in_from(place(node_, source_, Side::kInput, first), first, size);
    }

    /// The root's leader sends the piece to the other leaders. In the first step every leader sends to every other one,
    /// though it be nothing: so they see whether they all called the same.
    void pass_between_leaders(std::size_t first, std::size_t size) {
        const std::span<std::byte> bytes(place(node_, source_, Side::kInput, first), size);
        std::vector<OutMessage> out;
        std::vector<InMessage> in;
        for (int node = 0; node < static_cast<int>(team_.nodes()); ++node) {
            if (node == team_.topology.own_node) continue;
            const int peer = team_.topology.counterpart(node);
            if (at_root_) {
                out.push_back({peer, bytes});
            } else if (step_ == 0) {
                out.push_back({peer, {}});
            }
            if (node == root_node_) {
                in.push_back({peer, bytes});
            } else if (step_ == 0) {
                in.push_back({peer, {}});
            }
        }
        team_.links->exchange(operation_, step_++, out, in);
    }

    const Team& team_;
    Node& node_;
    const Operation& operation_;
    const OwnBuffer& own_;
    const int root_node_;
    const bool at_root_;
    int source_ = 0;  ///< local index
    std::uint32_t step_ = 0;
};

}  // namespace

void broadcast(const Team& team, const Operation& operation, const OwnBuffer& own) {
    Broadcast(team, operation, own).run();
}

}  // namespace ddp::detail

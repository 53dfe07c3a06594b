// Broadcast. On every node one rank's buffer is the source from which the others copy: the root's on its own node, the
// leader's on the others, once the root's leader has sent it there.

#include <algorithm>
#include <vector>

#include "worker_lib/src/native/collectives.hpp"

namespace ddp::detail {

namespace {

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
        const bool staging_source = is_source() && own_.is_foreign();
        if (staging_source && at_root_) stage(0, std::min(own_.bytes, staged_piece()));
        node_.meet(operation_, {.input = own_.place(), .output = own_.place()});
        const bool staged = node_.is_foreign(source_, Side::kInput);
        const std::size_t piece = staged || team_.nodes() > 1 ? staged_piece() : std::max<std::size_t>(own_.bytes, 1);

        std::size_t first = 0;
        do {  // once for no bytes at all, too: the leaders compare what was called
            const std::size_t size = std::min(piece, own_.bytes - first);
            if (first > 0 && staging_source && at_root_) stage(first, size);
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
    std::size_t staged_piece() const { return team_.nodes() > 1 ? kNetworkPieceBytes : kLocalPieceBytes; }

    void stage(std::size_t first, std::size_t size) const { own_.copy_out_to(node_.staging(source_), first, size); }

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

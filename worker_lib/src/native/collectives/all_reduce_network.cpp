// All-reduce and reduce between nodes. Each of the ranks that talk to other nodes reduces its slice of everybody's
// input over its node, adds it up with its counterparts on the other nodes, and stores the result to everybody's
// output, or the root's only. By which algorithm, all_reduce_rules.hpp says.

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/all_reduce_rules.hpp"
#include "worker_lib/src/native/sum_stream.hpp"
#include "worker_lib/src/native/windows.hpp"

namespace ddp::detail {

namespace {

class AllReduceAcross {
public:
    AllReduceAcross(const Team& team, const Operation& operation, const OwnBuffers& own)
        : parts_(team, operation, own),
          team_(team),
          operation_(operation),
          algorithm_(team.rules.choose(operation.buffer.bytes(), team.nodes())) {
        const std::size_t count = operation.buffer.count;
        // Where all nodes have one rank nothing is staged anywhere.
        const bool whole = team.topology.has_one_rank_each();
        windows_ = {.count = count,
                    .most = whole ? std::max<std::size_t>(1, count) : kWindowBytes / parts_.width,
                    .carriers = static_cast<std::size_t>(team.topology.carriers),
                    .carrier = static_cast<std::size_t>(team.node.own_index()),
                    .grain = parts_.grain};
    }

    void run() {
        const std::size_t windows = windows_.number();
        parts_.stage(windows_.window(0));
        parts_.meet();
        if (!parts_.any_staged()) {
            carry(windows, windows);
            return team_.node.barrier(operation_);
        }
        if (windows > 1) {
            parts_.stage(windows_.window(1));
            team_.node.barrier(operation_);
        }
        for (std::size_t now = 0; now < windows; ++now) {
            carry(std::min(windows, now + 2), now + 1);
            team_.node.barrier(operation_);
            parts_.take(windows_.window(now));
            if (now + 2 >= windows) continue;
            parts_.stage(windows_.window(now + 2));
            team_.node.barrier(operation_);
        }
    }

private:
    /// Our slices of the windows before `end`. Those before `open` may be begun: they are staged.
    void carry(std::size_t open, std::size_t end) {
        if (!team_.topology.own_carries() || (windows_.nothing() && !team_.is_leader())) return;
        if (algorithm_ == NetworkAlgorithm::kDoubling) {
            for (; handed_on_ < end; ++handed_on_) hand_on(windows_.slice(handed_on_));
            return;
        }
        if (!stream_) {
            stream_.emplace(parts_, algorithm_, windows_, team_.is_leader());
            team_.links->begin(operation_, stream_->ranks());
        }
        stream_->go_on(open, end);
        team_.links->go_on(operation_, *stream_);
        assert(end < windows_.number() || stream_->finished());
    }

    /// All nodes' sums come to every node in as many steps as their number has bits: in each a node hands on what it
    /// has, its own first, and so doubles it (Bruck's algorithm).
    void hand_on(Range slice) {
        if (slice.empty() && !(team_.is_leader() && handed_on_ == 0)) return;
        const std::size_t nodes = team_.nodes();
        const auto own = static_cast<std::size_t>(team_.topology.own_node);
        const std::size_t bytes = slice.size() * parts_.reduction.accumulator_bytes;
        // Place i is for the sums of node (own + i) modulo their number.
        const auto all = team_.scratch.inbox.first(nodes * bytes);
        if (bytes > 0) {
            const auto from = parts_.sources(slice.begin);
            parts_.reduction.reduce(from.data(), from.size(), slice.size(), all.data());
            team_.node.check_read(operation_);
        }
        for (std::size_t have = 1; have < nodes; have *= 2) {
            const std::size_t more = std::min(have, nodes - have);
            const bool later = have > 1;  // the peer may wait in a step before
            const OutMessage out{counterpart((own + nodes - have) % nodes), all.first(more * bytes), later};
            const InMessage in{counterpart((own + have) % nodes), all.subspan(have * bytes, more * bytes), later};
            team_.links->exchange(operation_, step_++, std::span(&out, 1), std::span(&in, 1));
        }
        std::byte* const to = parts_.landing(slice.begin);
        if (bytes == 0 || to == nullptr) return;
        std::vector<const void*> sums;
        for (std::size_t node = 0; node < nodes; ++node)
            sums.push_back(all.data() + (node + nodes - own) % nodes * bytes);
        const auto total = team_.scratch.sums.first(bytes);
        parts_.reduction.combine(sums.data(), nodes, slice.size(), total.data());
        parts_.reduction.finish(total.data(), slice.size(), parts_.scale, to);
        parts_.spread(slice);
    }

    int counterpart(std::size_t node) const { return team_.topology.counterpart(static_cast<int>(node)); }

    const AllReduceParts parts_;
    const Team& team_;
    const Operation& operation_;
    const NetworkAlgorithm algorithm_;
    Windows windows_;
    std::optional<SumStream> stream_;
    std::size_t handed_on_ = 0;  ///< windows
    std::uint32_t step_ = 0;
};

}  // namespace

void all_reduce_across(const Team& team, const Operation& operation, const OwnBuffers& own) {
    AllReduceAcross(team, operation, own).run();
}

}  // namespace ddp::detail

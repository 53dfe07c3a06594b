// All-reduce and reduce between nodes, hierarchical: each carrier, a rank with links to other nodes, reduces its slice
// of all inputs over its node, adds it up with its counterparts on the other nodes, and stores the result to all
// outputs, or the root's. all_reduce_rules.hpp lists the algorithms between counterparts.

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "worker_lib/src/native/collectives/all_reduce_parts.hpp"
#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"
#include "worker_lib/src/native/collectives/sum_stream.hpp"
#include "worker_lib/src/native/collectives/windows.hpp"

namespace ddp::detail {

namespace {

/// One all-reduce or reduce between nodes, of one rank.
class AllReduceAcross {
public:
    AllReduceAcross(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own)
        : parts_(context, operation, own),
          context_(context),
          operation_(operation),
          algorithm_(context.rules.choose(operation.buffer.bytes(), context.nodes())) {
        const std::size_t count = operation.buffer.count;
        // If all nodes have one rank, nothing is staged anywhere.
        const bool whole = context.topology.has_one_rank_each();
        windows_ = {.count = count,
                    .max_elements = whole ? std::max<std::size_t>(1, count) : kWindowBytes / parts_.width,
                    .carriers = static_cast<std::size_t>(context.topology.carriers),
                    .carrier = static_cast<std::size_t>(context.node.ranks.own_index()),
                    .grain = parts_.grain};
    }

    void run() {
        const std::size_t windows = windows_.number();
        parts_.stage(windows_.window(0));
        parts_.meet();
        if (!parts_.any_staged()) {
            carry(windows, windows);
            return context_.node.barrier.arrive_and_wait(operation_);
        }
        if (windows > 1) {
            parts_.stage(windows_.window(1));
            context_.node.barrier.arrive_and_wait(operation_);
        }
        for (std::size_t now = 0; now < windows; ++now) {
            carry(std::min(windows, now + 2), now + 1);
            context_.node.barrier.arrive_and_wait(operation_);
            parts_.take(windows_.window(now));
            if (now + 2 >= windows) continue;
            parts_.stage(windows_.window(now + 2));
            context_.node.barrier.arrive_and_wait(operation_);
        }
    }

private:
    /// Completes the own slices of the windows before `end`. May begin those before `open`, which are staged.
    void carry(std::size_t open, std::size_t end) {
        if (!context_.topology.own_carries() || (windows_.nothing() && !context_.is_leader())) return;
        if (algorithm_ == NetworkAlgorithm::kDoubling) {
            for (; gathered_ < end; ++gathered_) gather_sums(windows_.slice(gathered_));
            return;
        }
        if (!stream_) {
            stream_.emplace(parts_, algorithm_, windows_, context_.is_leader());
            context_.links->begin(operation_, stream_->ranks());
        }
        stream_->go_on(open, end);
        context_.links->go_on(operation_, *stream_);
        assert(end < windows_.number() || stream_->finished());
    }

    /// Gathers the sums of all nodes on every node and adds them up in node order. Bruck's all-gather (Bruck et al.
    /// 1997): in step k a node sends all blocks that it has, its own sums first, to the node 2^k before it. So each
    /// step doubles the blocks of a node, for any number of nodes.
    void gather_sums(Range slice) {
        if (slice.empty() && !(context_.is_leader() && gathered_ == 0)) return;
        const std::size_t nodes = context_.nodes();
        const auto own = static_cast<std::size_t>(context_.topology.own_node);
        const std::size_t bytes = slice.size() * parts_.reduction.accumulator_bytes;
        // Block i holds the sums of node (own + i) modulo the number of nodes.
        const auto all = context_.scratch.inbox.first(nodes * bytes);
        if (bytes > 0) {
            const auto from = parts_.sources(slice.begin);
            parts_.reduction.reduce(from.data(), from.size(), slice.size(), all.data());
            context_.node.wait.check_read(operation_);
        }
        for (std::size_t have = 1; have < nodes; have *= 2) {
            const std::size_t more = std::min(have, nodes - have);
            const bool later = have > 1;  // the peer may still wait in an earlier step
            const OutMessage out{counterpart((own + nodes - have) % nodes), all.first(more * bytes), later};
            const InMessage in{counterpart((own + have) % nodes), all.subspan(have * bytes, more * bytes), later};
            context_.links->exchange(operation_, step_++, std::span(&out, 1), std::span(&in, 1));
        }
        std::byte* const to = parts_.landing(slice.begin);
        if (bytes == 0 || to == nullptr) return;
        std::vector<const void*> sums;
        for (std::size_t node = 0; node < nodes; ++node)
            sums.push_back(all.data() + (node + nodes - own) % nodes * bytes);
        const auto total = context_.scratch.sums.first(bytes);
        parts_.reduction.combine(sums.data(), nodes, slice.size(), total.data());
        parts_.reduction.finish(total.data(), slice.size(), parts_.scale, to);
        parts_.spread(slice);
    }

    int counterpart(std::size_t node) const { return context_.topology.counterpart(static_cast<int>(node)); }

    const AllReduceParts parts_;
    const CollectiveContext& context_;
    const Operation& operation_;
    const NetworkAlgorithm algorithm_;
    Windows windows_;
    std::optional<SumStream> stream_;
    std::size_t gathered_ = 0;  ///< windows, by kDoubling
    std::uint32_t step_ = 0;
};

}  // namespace

void all_reduce_across(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own) {
    AllReduceAcross(context, operation, own).run();
}

}  // namespace ddp::detail

#pragma once
// SumStream: the messages of one rank in an all-reduce or reduce between nodes. While one piece is reduced over the own
// node, others are on their way, and others are added up.
//
// kScatter is reduce-scatter + all-gather (Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005) with pairwise exchange
// in both halves: node j adds up part j of each piece, in node order, and sends the sum to all. Each node sends
// 2(N-1)/N of the data, the minimum. The halving and doubling steps of the published algorithm would add in another
// order. kDirect has one step: every node sends its sums to all and adds up everything.
//
// Order of the messages to each peer: the sums S of the own node for pieces 0, 1, …, and kLag = 1 piece later the
// finished part G: S0 S1 G0 S2 G1 S3 …. Both ends know it. The data of a piece lies in one of kDepth slots, which is
// free for another piece when all its messages are sent. Because kDepth > kLag, S(k + kDepth) comes after G(k)
// everywhere, so no cycle of waits can form.
//
// An operation owns it. Links calls it on the thread that runs the operation.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker_lib/src/native/collectives/all_reduce_parts.hpp"
#include "worker_lib/src/native/collectives/all_reduce_rules.hpp"
#include "worker_lib/src/native/collectives/sum_memory.hpp"
#include "worker_lib/src/native/collectives/windows.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

class SumStream final : public MessageStream {
public:
    /// `opening`: every node sends to every other, even an empty message, so that the nodes compare their calls.
    SumStream(const AllReduceParts& parts, NetworkAlgorithm algorithm, const Windows& windows, bool opening);

    /// Lets windows before `open` begin, whose staged data is there, and completes those before `end`. Then it stops,
    /// and no message that touches their memory is in flight any more.
    void go_on(std::size_t open, std::size_t end);

    /// Returns the ranks of the peers, in the order of their nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
    [[nodiscard]] bool finished() const;
    /// Returns the maximum number of elements in a message whose accumulators have `width` bytes: a multiple of every
    /// grain.
    [[nodiscard]] static std::size_t message_elements(std::size_t nodes, std::size_t width);

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t peer) override;
    void received(std::size_t peer) override;
    [[nodiscard]] bool out_depends(std::size_t peer) const override;
    [[nodiscard]] bool in_depends(std::size_t peer) const override;
    [[nodiscard]] bool stops() const override;

private:
    enum class Phase : std::uint8_t { kSums, kResult };
    /// The messages of one direction: how many pieces of each kind Links has taken.
    struct Direction {
        std::size_t sums = 0;
        std::size_t results = 0;
        bool in_flight = false;      ///< the last message
        Phase phase = Phase::kSums;  ///< of that one
    };
    struct Peer {
        std::size_t node = 0;
        Direction out;
        Direction in;
    };
    enum class Next : std::uint8_t { kSums, kResult, kNothing };
    [[nodiscard]] Next next_of(const Direction& direction) const;
    [[nodiscard]] std::size_t completed(const Direction& direction) const;
    [[nodiscard]] static std::size_t arrived(const Peer& peer);

    [[nodiscard]] Range part_of(std::size_t node, std::size_t number) const;
    [[nodiscard]] bool has_slot(std::size_t number) const;
    [[nodiscard]] bool gets_any(std::size_t node) const;
    [[nodiscard]] bool reduce(std::size_t number);
    [[nodiscard]] bool may_combine(std::size_t number) const;
    void combine_arrived();
    void combine(std::size_t number);

    const AllReduceParts& parts_;
    const bool direct_;
    const bool opening_;
    const std::size_t nodes_;
    const std::size_t own_node_;
    const Pieces cut_;
    const std::size_t pieces_;
    const SumMemory memory_;
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
    std::size_t open_ = 0;      ///< pieces that may be begun
    std::size_t end_ = 0;       ///< pieces that go_on() has to complete
    std::size_t reduced_ = 0;   ///< pieces, over the own node
    std::size_t combined_ = 0;  ///< pieces, over all nodes
};

}  // namespace ddp::detail

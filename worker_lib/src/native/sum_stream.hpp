#pragma once
// SumStream: one rank's slices of an all-reduce or reduce, added up over the nodes in pieces: while one is reduced over
// the own node, others are on their way, and others are added up. With kScatter node j adds up part j of each piece and
// sends it to all; with kDirect every node adds up everything.
//
// To each peer go, for pieces 0, 1, …: the sums of the own node (S), and kLag = 1 piece later the finished part (G):
// S0 S1 G0 S2 G1 S3 …. Both ends know this order. What a piece needs is kept in one of kDepth places, which is free for
// another when all its messages are sent: as kDepth > kLag, S(k + kDepth) comes after G(k) everywhere, and nobody waits
// in a circle.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/all_reduce_rules.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/stream.hpp"
#include "worker_lib/src/native/windows.hpp"

namespace ddp::detail {

class SumStream final : public Stream {
public:
    /// `opening`: everybody sends to everybody, be it nothing, so that the nodes compare what was called.
    SumStream(const AllReduceParts& parts, NetworkAlgorithm algorithm, const Windows& windows, bool opening);

    /// Windows before `open` may be begun: what is staged of them is there. Those before `end` are to be done, then
    /// stop: nothing is under way any more that touches their memory.
    void go_on(std::size_t open, std::size_t end);

    /// Ranks of the peers, in the order of their nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
    [[nodiscard]] bool finished() const;
    /// The most elements of a message where accumulators have `width` bytes: a multiple of every grain.
    [[nodiscard]] static std::size_t chunk_elements(std::size_t nodes, std::size_t width);

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t peer) override;
    void received(std::size_t peer) override;
    [[nodiscard]] bool out_depends(std::size_t peer) const override;
    [[nodiscard]] bool in_depends(std::size_t peer) const override;
    [[nodiscard]] bool stops() const override;

private:
    enum class Phase : std::uint8_t { kSums, kResult };
    /// How far the messages of one direction are: pieces of which each kind has been given to Links.
    struct Line {
        std::size_t sums = 0;
        std::size_t results = 0;
        bool in_hand = false;
        Phase phase = Phase::kSums;  ///< of the one in hand
    };
    struct Peer {
        std::size_t node = 0;
        Line out;
        Line in;
    };
    enum class Next : std::uint8_t { kSums, kResult, kNothing };
    [[nodiscard]] Next next_of(const Line& line) const;
    /// Pieces of which all messages of a direction are done; and of which all sums have come from a peer.
    [[nodiscard]] std::size_t through(const Line& line) const;
    [[nodiscard]] static std::size_t arrived(const Peer& peer);

    [[nodiscard]] Range part_of(std::size_t node, std::size_t number) const;
    [[nodiscard]] bool has_place(std::size_t number) const;
    [[nodiscard]] bool gets_any(std::size_t node) const;
    [[nodiscard]] const std::byte* sums(std::size_t number, std::size_t element) const;
    [[nodiscard]] std::byte* inbox(std::size_t number, std::size_t node) const;
    [[nodiscard]] std::byte* result(std::size_t number, Range part) const;
    [[nodiscard]] bool reduce(std::size_t number);
    [[nodiscard]] bool may_combine(std::size_t number) const;
    void combine_what_is_there();
    void combine(std::size_t number);

    const AllReduceParts& parts_;
    const bool direct_;
    const bool opening_;
    const std::size_t nodes_;
    const std::size_t own_node_;
    const std::size_t width_;  ///< of an accumulator
    const std::size_t chunk_;  ///< the most elements of a message
    const Pieces cut_;
    const std::size_t pieces_;
    const bool in_place_;  ///< the own node's sums are the input itself
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
    std::span<std::byte> sums_;
    std::span<std::byte> inbox_;
    std::size_t open_ = 0;     ///< pieces that may be begun
    std::size_t end_ = 0;      ///< and that are to be done
    std::size_t reduced_ = 0;  ///< pieces, over the own node
    std::size_t combined_ = 0;
};

}  // namespace ddp::detail

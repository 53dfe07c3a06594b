#pragma once
// BroadcastStream: cuts one rank's slices in a broadcast between nodes into pieces, whose size it chooses, and orders
// the messages that carry them.
//
// kHandOn is scatter + all-gather (Barnett et al. 1994; Thakur, Rabenseifner, Gropp 2005), pipelined piece by piece:
// the root's node sends the pieces to the other nodes in turn, and each of these passes a piece on to the rest as soon
// as it has arrived. No node sends more than the slices, all connections are busy, and a piece is everywhere after two
// hops. kDirect: the root's node sends everything to all others.
//
// An operation owns it. Links calls it on the thread that runs the operation.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker_lib/src/native/collectives/windows.hpp"
#include "worker_lib/src/native/net/message_stream.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

namespace ddp::detail {

enum class BroadcastAlgorithm : std::uint8_t {
    kDirect,  ///< one hop: for small buffers and few nodes
    kTree,    ///< binomial tree, log2(nodes) hops: for small buffers and many nodes (broadcast.cpp)
    kHandOn,  ///< the fewest bytes
};
/// Returns the algorithm for a buffer of `bytes` bytes. Pure: the same on all ranks.
[[nodiscard]] BroadcastAlgorithm choose_broadcast(std::size_t nodes, std::size_t bytes);

class BroadcastStream final : public MessageStream {
public:
    /// Returns the address of a byte of the buffer, valid up to the end of its window.
    using Address = std::function<std::byte*(std::size_t)>;
    /// `algorithm` is not kTree. `windows` are of bytes. `opening`: every node sends to every other, even an empty
    /// message, so that the nodes compare their calls. `owner`: of the memory at `address`.
    BroadcastStream(const Topology& topology, int root_node, BroadcastAlgorithm algorithm, const Windows& windows,
                    bool opening, Address address, Owner owner);

    /// Lets windows before `open` begin, whose memory is ready, and completes those before `end`. Then it stops.
    void go_on(std::size_t open, std::size_t end);

    /// Returns the ranks of the peers, in the order of their nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t peer) override { ++peers_[peer].sent; }
    void received(std::size_t peer) override { ++peers_[peer].arrived; }
    [[nodiscard]] bool in_depends(std::size_t peer) const override;
    [[nodiscard]] bool stops() const override;

private:
    struct Peer {
        std::size_t node = 0;
        std::size_t given = 0;  ///< messages to it that Links has taken
        std::size_t sent = 0;
        std::size_t expected = 0;  ///< messages from it that Links has asked for
        std::size_t arrived = 0;
    };
    /// The messages from one node to another: `openings` empty ones, then the pieces first, first + stride, …
    struct Course {
        std::size_t openings = 0;
        std::size_t first = 0;
        std::size_t stride = 1;
        std::size_t count = 0;
    };
    [[nodiscard]] Course course_of(std::size_t from, std::size_t to) const;
    [[nodiscard]] static std::size_t messages(const Course& course) { return course.openings + course.count; }
    [[nodiscard]] static std::size_t number_of(const Course& course, std::size_t message);
    [[nodiscard]] static std::uint32_t step_of(const Course& course, std::size_t message);
    [[nodiscard]] std::span<std::byte> piece(const Course& course, std::size_t message) const;
    [[nodiscard]] bool ends(const Course& course, std::size_t done) const;
    [[nodiscard]] std::size_t arrived_from_root() const;

    const std::size_t nodes_;
    const std::size_t own_;
    const std::size_t root_;
    const bool hand_on_;
    const bool opening_;
    const Address address_;
    const Owner owner_;
    const Pieces cut_;
    const std::size_t pieces_;
    std::size_t open_ = 0;  ///< pieces that may be begun
    std::size_t end_ = 0;   ///< pieces that go_on() has to complete
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
};

}  // namespace ddp::detail

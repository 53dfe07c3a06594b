#pragma once
// BroadcastStream: one rank's slices of a broadcast between nodes, in pieces. Handed on, the root's node sends each to
// one of the others, to all in turn, and that one passes it to the rest as soon as it has come. So no node sends more
// than the slices, all connections are busy, and a piece has arrived everywhere after two hops. Direct: the root's node
// sends all to all.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/stream.hpp"
#include "worker_lib/src/native/windows.hpp"

namespace ddp::detail {

enum class BroadcastWay : std::uint8_t {
    kDirect,  ///< few small messages, one hop
    kTree,    ///< log2(nodes) hops, in each of which those who have it send it once: small, to many nodes
    kHandOn,  ///< the least bytes
};
[[nodiscard]] BroadcastWay choose_broadcast(std::size_t nodes, std::size_t bytes);

class BroadcastStream final : public Stream {
public:
    /// Where a byte of the buffer lies on the root's node, or is to lie on the others; up to the end of its window.
    using Place = std::function<std::byte*(std::size_t)>;
    /// `way` is not kTree. `windows` are of bytes. `opening`: everybody sends to everybody, be it nothing, so that the
    /// nodes compare what was called. `owner`: of the memory at `place`.
    BroadcastStream(const Topology& topology, int root_node, BroadcastWay way, const Windows& windows, bool opening,
                    Place place, Owner owner);

    /// Windows before `open` may be begun: their memory is there. Those before `end` are to be done, then stop.
    void go_on(std::size_t open, std::size_t end);

    /// Ranks of the peers, in the order of their nodes.
    [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

    [[nodiscard]] NextOut next_out(std::size_t peer) override;
    [[nodiscard]] NextIn next_in(std::size_t peer) override;
    void sent(std::size_t peer) override { ++peers_[peer].sent; }
    void received(std::size_t peer) override { ++peers_[peer].come; }
    [[nodiscard]] bool in_depends(std::size_t peer) const override;
    [[nodiscard]] bool stops() const override;

private:
    struct Peer {
        std::size_t node = 0;
        std::size_t given = 0;  ///< messages to it that Links has got
        std::size_t sent = 0;
        std::size_t expected = 0;  ///< from it
        std::size_t come = 0;
    };
    /// What passes from one node to another: `openings` empty messages, then the pieces first, first + stride, …
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
    [[nodiscard]] std::size_t come_from_root() const;

    const std::size_t nodes_;
    const std::size_t own_;
    const std::size_t root_;
    const bool hand_on_;
    const bool opening_;
    const Place place_;
    const Owner owner_;
    const Pieces cut_;
    const std::size_t pieces_;
    std::size_t open_ = 0;  ///< pieces that may be begun
    std::size_t end_ = 0;   ///< and that are to be done
    std::vector<Peer> peers_;
    std::vector<int> ranks_;
};

}  // namespace ddp::detail

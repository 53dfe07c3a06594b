#include "worker_lib/src/native/collectives/broadcast_stream.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "worker_lib/src/native/net/flow.hpp"

namespace ddp::detail {

namespace {

constexpr std::size_t kMaxPieceBytes = 256u << 10;
/// Below this size the fixed cost of a message matters more than its bytes.
constexpr std::size_t kMinPieceBytes = 16u << 10;
/// Up to this many nodes a small buffer is sent directly: the opening of an operation sends as many messages anyway.
constexpr std::size_t kFewNodes = 8;
constexpr std::size_t kPage = 4096;

/// Returns the bytes of a piece, such that every other node has at least two to hand on.
std::size_t piece_size(std::size_t bytes, std::size_t nodes) {
    const std::size_t even = (bytes / (2 * (nodes - 1)) + kPage - 1) / kPage * kPage;
    return std::clamp(even, kMinPieceBytes, kMaxPieceBytes);
}

}  // namespace

BroadcastAlgorithm choose_broadcast(std::size_t nodes, std::size_t bytes) {
    if (nodes <= kFewNodes) return bytes <= kMinPieceBytes ? BroadcastAlgorithm::kDirect : BroadcastAlgorithm::kHandOn;
    // A node that hands a piece on sends it nodes - 2 times; the root of a tree sends everything log2(nodes) times.
    const auto steps = static_cast<std::size_t>(std::bit_width(nodes - 1));
    return bytes <= (nodes - 1) * kMinPieceBytes / steps ? BroadcastAlgorithm::kTree : BroadcastAlgorithm::kHandOn;
}

BroadcastStream::BroadcastStream(const Topology& topology, int root_node, BroadcastAlgorithm algorithm,
                                 const Windows& windows, bool opening, Address address, Owner owner)
    : nodes_(topology.nodes.size()),
      own_(static_cast<std::size_t>(topology.own_node)),
      root_(static_cast<std::size_t>(root_node)),
      hand_on_(algorithm == BroadcastAlgorithm::kHandOn && nodes_ > 2),
      opening_(opening),
      address_(std::move(address)),
      owner_(owner),
      cut_{windows, hand_on_ ? piece_size(windows.largest_slice(), nodes_) : kMaxPieceBytes},
      pieces_(cut_.number()),
      ranks_(topology.counterparts()) {
    for (std::size_t node = 0; node < nodes_; ++node) {
        if (node != own_) peers_.push_back({.node = node});
    }
}

void BroadcastStream::go_on(std::size_t open, std::size_t end) {
    open_ = cut_.before(open);
    end_ = cut_.before(end);
}

/// Returns the messages from one node to another. A node that hands pieces on first sends an empty message, because its
/// first piece depends on the root: so a late node can be distinguished from one that waits for the root.
BroadcastStream::Course BroadcastStream::course_of(std::size_t from, std::size_t to) const {
    Course course;
    if (from == root_ || (hand_on_ && to != root_)) {
        if (hand_on_) {
            course.first = ((from == root_ ? to : from) + nodes_ - root_ - 1) % nodes_;
            course.stride = nodes_ - 1;
        }
        if (course.first < pieces_) course.count = (pieces_ - course.first - 1) / course.stride + 1;
    }
    const bool hands_on = hand_on_ && from != root_ && to != root_;
    if (hands_on || (opening_ && (from != root_ || course.count == 0))) course.openings = 1;
    return course;
}

/// Returns the number of the piece that a message carries. An opening belongs to the first window.
std::size_t BroadcastStream::number_of(const Course& course, std::size_t message) {
    return message < course.openings ? 0 : course.first + (message - course.openings) * course.stride;
}

std::uint32_t BroadcastStream::step_of(const Course& course, std::size_t message) {
    constexpr std::uint32_t kOpening = MessageHeader::kWaiting - 1;  // no piece has this number
    return message < course.openings ? kOpening : static_cast<std::uint32_t>(number_of(course, message));
}

std::span<std::byte> BroadcastStream::piece(const Course& course, std::size_t message) const {
    if (message < course.openings) return {};
    const Range range = cut_.at(number_of(course, message));
    return {address_(range.begin), range.size()};
}

/// Returns whether `done` messages are all that go_on() has to complete.
bool BroadcastStream::ends(const Course& course, std::size_t done) const {
    return done == messages(course) || number_of(course, done) >= end_;
}

bool BroadcastStream::stops() const {
    return std::ranges::all_of(peers_, [this](const Peer& peer) {
        return ends(course_of(own_, peer.node), peer.sent) && ends(course_of(peer.node, own_), peer.arrived);
    });
}

bool BroadcastStream::in_depends(std::size_t peer) const {
    const Peer& from = peers_[peer];
    return from.node != root_ && from.arrived >= course_of(from.node, own_).openings;
}

/// Returns how many messages of the root have arrived. Only on other nodes.
std::size_t BroadcastStream::arrived_from_root() const { return peers_[root_ < own_ ? root_ : root_ - 1].arrived; }

NextOut BroadcastStream::next_out(std::size_t peer) {
    const Course course = course_of(own_, peers_[peer].node);
    std::size_t& given = peers_[peer].given;
    if (given == messages(course)) return {};
    // The pieces to hand on arrive in the same order.
    const bool has_arrived = own_ == root_ || given < course.openings || arrived_from_root() > given - course.openings;
    if (number_of(course, given) >= open_ || !has_arrived)
        return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
    const std::size_t message = given++;
    return {.readiness = Readiness::kNow,
            .step = step_of(course, message),
            .bytes = piece(course, message),
            .owner = owner_};
}

NextIn BroadcastStream::next_in(std::size_t peer) {
    const Course course = course_of(peers_[peer].node, own_);
    std::size_t& expected = peers_[peer].expected;
    if (expected == messages(course)) return {};
    if (number_of(course, expected) >= open_) return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
    const std::size_t message = expected++;
    return {.readiness = Readiness::kNow, .step = step_of(course, message), .bytes = piece(course, message)};
}

}  // namespace ddp::detail

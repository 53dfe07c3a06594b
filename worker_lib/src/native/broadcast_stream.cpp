#include "worker_lib/src/native/broadcast_stream.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace ddp::detail {

namespace {

constexpr std::size_t kMostPieceBytes = 256u << 10;
/// Below this what a message costs matters more than its bytes.
constexpr std::size_t kLeastPieceBytes = 16u << 10;
/// To so many nodes a small message is sent at once: as many as the opening of an operation sends anyway.
constexpr std::size_t kFewNodes = 8;
constexpr std::size_t kPage = 4096;

/// So that every other node has two pieces to hand on at least.
std::size_t piece_size(std::size_t bytes, std::size_t nodes) {
    const std::size_t even = (bytes / (2 * (nodes - 1)) + kPage - 1) / kPage * kPage;
    return std::clamp(even, kLeastPieceBytes, kMostPieceBytes);
}

}  // namespace

BroadcastWay choose_broadcast(std::size_t nodes, std::size_t bytes) {
    if (nodes <= kFewNodes) return bytes <= kLeastPieceBytes ? BroadcastWay::kDirect : BroadcastWay::kHandOn;
    // Whoever hands a piece on sends it nodes - 2 times; the root of a tree sends everything log2(nodes) times.
    const auto steps = static_cast<std::size_t>(std::bit_width(nodes - 1));
    return bytes <= (nodes - 1) * kLeastPieceBytes / steps ? BroadcastWay::kTree : BroadcastWay::kHandOn;
}

BroadcastStream::BroadcastStream(const Topology& topology, int root_node, BroadcastWay way, const Windows& windows,
                                 bool opening, Place place)
    : nodes_(topology.nodes.size()),
      own_(static_cast<std::size_t>(topology.own_node)),
      root_(static_cast<std::size_t>(root_node)),
      hand_on_(way == BroadcastWay::kHandOn && nodes_ > 2),
      opening_(opening),
      place_(std::move(place)),
      cut_{windows, hand_on_ ? piece_size(windows.largest_slice(), nodes_) : kMostPieceBytes},
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

BroadcastStream::Course BroadcastStream::course_of(std::size_t from, std::size_t to) const {
    if (to == root_ || (from != root_ && !hand_on_)) return {};
    Course course;
    if (hand_on_) {
        const std::size_t middle = from == root_ ? to : from;
        course = {.first = (middle + nodes_ - root_ - 1) % nodes_, .stride = nodes_ - 1, .count = 0};
    }
    if (course.first < pieces_) course.count = (pieces_ - course.first - 1) / course.stride + 1;
    return course;
}

std::size_t BroadcastStream::messages(const Course& course) const {
    return std::max<std::size_t>(course.count, opening_ ? 1 : 0);
}

/// Of the piece that a message carries; the first one's if that is none.
std::size_t BroadcastStream::number_of(const Course& course, std::size_t message) {
    return course.count == 0 ? 0 : course.first + message * course.stride;
}

std::span<std::byte> BroadcastStream::piece(const Course& course, std::size_t number) const {
    if (course.count == 0) return {};
    const Range range = cut_.at(number);
    return {place_(range.begin), range.size()};
}

/// Whether after `done` messages all are through that are to be done now.
bool BroadcastStream::ends(const Course& course, std::size_t done) const {
    return done == messages(course) || number_of(course, done) >= end_;
}

bool BroadcastStream::stops() const {
    return std::ranges::all_of(peers_, [this](const Peer& peer) {
        return ends(course_of(own_, peer.node), peer.sent) && ends(course_of(peer.node, own_), peer.come);
    });
}

std::size_t BroadcastStream::come_from_root() const { return peers_[root_ < own_ ? root_ : root_ - 1].come; }

NextOut BroadcastStream::next_out(std::size_t peer) {
    const Course course = course_of(own_, peers_[peer].node);
    std::size_t& given = peers_[peer].given;
    if (given == messages(course)) return {};
    const std::size_t number = number_of(course, given);
    // What we hand on comes to us in the same order.
    const bool comes_first = own_ != root_ && course.count > 0;
    if (number >= open_ || (comes_first && come_from_root() <= given))
        return {.turn = Turn::kLater, .step = 0, .bytes = {}};
    ++given;
    return {.turn = Turn::kNow, .step = static_cast<std::uint32_t>(number), .bytes = piece(course, number)};
}

NextIn BroadcastStream::next_in(std::size_t peer) {
    const Course course = course_of(peers_[peer].node, own_);
    std::size_t& expected = peers_[peer].expected;
    if (expected == messages(course)) return {};
    const std::size_t number = number_of(course, expected);
    if (number >= open_) return {.turn = Turn::kLater, .step = 0, .bytes = {}};
    ++expected;
    return {.turn = Turn::kNow, .step = static_cast<std::uint32_t>(number), .bytes = piece(course, number)};
}

}  // namespace ddp::detail

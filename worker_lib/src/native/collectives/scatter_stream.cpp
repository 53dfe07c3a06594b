#include "worker_lib/src/native/collectives/scatter_stream.hpp"

#include <algorithm>

#include "worker_lib/src/native/collectives/sum_stream.hpp"

namespace ddp::detail {

namespace {

constexpr std::size_t kPiecesUnderWay = 4;

}  // namespace

ScatterStream::ScatterStream(const CollectiveContext& context, const ScatterSums& sums, std::size_t width, bool opening,
                             std::uint32_t step)
    : sums_(sums),
      width_(width),
      opening_(opening),
      step_(step),
      nodes_(context.nodes()),
      own_(static_cast<std::size_t>(context.topology.own_node)),
      message_elements_(SumStream::message_elements(nodes_, width)),
      ranks_(context.topology.counterparts()),
      parts_(nodes_) {
    std::size_t largest = 0;
    for (std::size_t node = 0; node < nodes_; ++node) {
        if (node != own_) peers_.push_back({.node = node});
        max_pieces_ = std::max(max_pieces_, pieces(node));
        largest = std::max(largest, sums.size(node));
    }
    const std::size_t message_bytes = std::min(message_elements_, largest) * width_;
    const std::size_t depth = std::min(kPiecesUnderWay, max_pieces_);
    outbox_ = context.scratch.sums.first(nodes_ * message_bytes);
    inbox_ = context.scratch.inbox.first(depth * nodes_ * message_bytes);
}

Range ScatterStream::piece(std::size_t node, std::size_t number) const {
    const std::size_t size = sums_.size(node);
    return {std::min(size, number * message_elements_), std::min(size, (number + 1) * message_elements_)};
}

std::size_t ScatterStream::pieces(std::size_t node) const {
    return (sums_.size(node) + message_elements_ - 1) / message_elements_;
}

/// Returns how many messages every other node sends to `node`.
std::size_t ScatterStream::messages(std::size_t node) const {
    return std::max<std::size_t>(pieces(node), opening_ ? 1 : 0);
}

std::byte* ScatterStream::inbox(std::size_t number, std::size_t node) const {
    const std::size_t slot = number % std::min(kPiecesUnderWay, max_pieces_);
    return inbox_.data() + (slot * nodes_ + node) * (outbox_.size() / nodes_);
}

NextOut ScatterStream::next_out(std::size_t peer) {
    auto& [node, given, expected, arrived] = peers_[peer];
    if (given == messages(node)) return {};
    const std::size_t number = given++;
    const Range range = piece(node, number);
    const std::byte* data = nullptr;
    if (!range.empty()) data = sums_.sums(node, range, outbox_.data() + node * (outbox_.size() / nodes_));
    return {.readiness = Readiness::kNow,
            .step = step_ + static_cast<std::uint32_t>(number),
            .bytes = {data, range.size() * width_}};
}

NextIn ScatterStream::next_in(std::size_t peer) {
    auto& [node, given, expected, arrived] = peers_[peer];
    if (expected == messages(own_)) return {};
    if (expected >= combined_ + kPiecesUnderWay) return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
    const std::size_t number = expected++;
    return {.readiness = Readiness::kNow,
            .step = step_ + static_cast<std::uint32_t>(number),
            .bytes = {inbox(number, node), piece(own_, number).size() * width_}};
}

void ScatterStream::received(std::size_t peer) {
    ++peers_[peer].arrived;
    combine_arrived();
}

void ScatterStream::combine_arrived() {
    const auto here = [this](const Peer& peer) { return peer.arrived > combined_; };
    for (; combined_ < pieces(own_) && std::ranges::all_of(peers_, here); ++combined_) {
        const Range range = piece(own_, combined_);
        for (std::size_t node = 0; node < nodes_; ++node) parts_[node] = inbox(combined_, node);
        parts_[own_] = sums_.sums(own_, range, outbox_.data() + own_ * (outbox_.size() / nodes_));
        sums_.store(range, parts_, inbox(combined_, own_));
    }
}

}  // namespace ddp::detail

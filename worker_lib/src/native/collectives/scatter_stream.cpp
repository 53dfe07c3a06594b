#include "worker_lib/src/native/scatter_stream.hpp"

#include <algorithm>

#include "worker_lib/src/native/sum_stream.hpp"

namespace ddp::detail {

namespace {

constexpr std::size_t kDepth = 4;

}  // namespace

ScatterStream::ScatterStream(const Team& team, const ScatterSums& sums, std::size_t width, bool opening,
                             std::uint32_t step)
    : sums_(sums),
      width_(width),
      opening_(opening),
      step_(step),
      nodes_(team.nodes()),
      own_(static_cast<std::size_t>(team.topology.own_node)),
      chunk_(SumStream::chunk_elements(nodes_, width)),
      ranks_(team.topology.counterparts()),
      parts_(nodes_) {
    std::size_t largest = 0;
    for (std::size_t node = 0; node < nodes_; ++node) {
        if (node != own_) peers_.push_back({.node = node});
        most_pieces_ = std::max(most_pieces_, pieces(node));
        largest = std::max(largest, sums.size(node));
    }
    const std::size_t chunk_bytes = std::min(chunk_, largest) * width_;
    const std::size_t depth = std::min(kDepth, most_pieces_);
    outbox_ = team.scratch.sums.first(nodes_ * chunk_bytes);
    inbox_ = team.scratch.inbox.first(depth * nodes_ * chunk_bytes);
}

Range ScatterStream::piece(std::size_t node, std::size_t number) const {
    const std::size_t size = sums_.size(node);
    return {std::min(size, number * chunk_), std::min(size, (number + 1) * chunk_)};
}

std::size_t ScatterStream::pieces(std::size_t node) const { return (sums_.size(node) + chunk_ - 1) / chunk_; }

/// That every other node sends to `node`.
std::size_t ScatterStream::messages(std::size_t node) const {
    return std::max<std::size_t>(pieces(node), opening_ ? 1 : 0);
}

std::byte* ScatterStream::inbox(std::size_t number, std::size_t node) const {
    const std::size_t place = number % std::min(kDepth, most_pieces_);
    return inbox_.data() + (place * nodes_ + node) * (outbox_.size() / nodes_);
}

NextOut ScatterStream::next_out(std::size_t peer) {
    auto& [node, given, expected, come] = peers_[peer];
    if (given == messages(node)) return {};
    const std::size_t number = given++;
    const Range range = piece(node, number);
    const std::byte* data = nullptr;
    if (!range.empty()) data = sums_.sums(node, range, outbox_.data() + node * (outbox_.size() / nodes_));
    return {
        .turn = Turn::kNow, .step = step_ + static_cast<std::uint32_t>(number), .bytes = {data, range.size() * width_}};
}

NextIn ScatterStream::next_in(std::size_t peer) {
    auto& [node, given, expected, come] = peers_[peer];
    if (expected == messages(own_)) return {};
    if (expected >= combined_ + kDepth) return {.turn = Turn::kLater, .step = 0, .bytes = {}};
    const std::size_t number = expected++;
    return {.turn = Turn::kNow,
            .step = step_ + static_cast<std::uint32_t>(number),
            .bytes = {inbox(number, node), piece(own_, number).size() * width_}};
}

void ScatterStream::received(std::size_t peer) {
    ++peers_[peer].come;
    combine_what_is_there();
}

void ScatterStream::combine_what_is_there() {
    const auto here = [this](const Peer& peer) { return peer.come > combined_; };
    for (; combined_ < pieces(own_) && std::ranges::all_of(peers_, here); ++combined_) {
        const Range range = piece(own_, combined_);
        for (std::size_t node = 0; node < nodes_; ++node) parts_[node] = inbox(combined_, node);
        parts_[own_] = sums_.sums(own_, range, outbox_.data() + own_ * (outbox_.size() / nodes_));
        sums_.store(range, parts_, inbox(combined_, own_));
    }
}

}  // namespace ddp::detail

#include "worker_lib/src/native/collectives/sum_stream.hpp"

#include <algorithm>

namespace ddp::detail {

namespace {

/// Small enough that a piece stays in the second-level cache and the pipeline is soon full, large enough that the fixed
/// cost of a message does not matter.
constexpr std::size_t kMaxMessageBytes = 256u << 10;
constexpr std::size_t kMinMessageBytes = 16u << 10;
/// Maximum bytes of all messages of one piece: with many nodes each message is smaller.
constexpr std::size_t kPieceOfAllNodes = 2u << 20;
constexpr std::size_t kLag = 1;
constexpr std::size_t kDepth = SumMemory::kDepth;
static_assert(kDepth > kLag);

}  // namespace

std::size_t SumStream::message_elements(std::size_t nodes, std::size_t width) {
    const std::size_t bytes = std::clamp(kPieceOfAllNodes / nodes, kMinMessageBytes, kMaxMessageBytes);
    return bytes / kMinMessageBytes * kMinMessageBytes / width;
}

SumStream::SumStream(const AllReduceParts& parts, NetworkAlgorithm algorithm, const Windows& windows, bool opening)
    : parts_(parts),
      direct_(algorithm == NetworkAlgorithm::kDirect),
      opening_(opening),
      nodes_(parts.context.nodes()),
      own_node_(static_cast<std::size_t>(parts.context.topology.own_node)),
      cut_{windows, message_elements(nodes_, parts.reduction.accumulator_bytes) * (direct_ ? 1 : nodes_)},
      pieces_(cut_.number()),
      memory_(parts, cut_, message_elements(nodes_, parts.reduction.accumulator_bytes)) {
    for (std::size_t node = 0; node < nodes_; ++node) {
        if (node == own_node_) continue;
        peers_.push_back({.node = node, .out = {}, .in = {}});
        ranks_.push_back(parts.context.topology.counterpart(static_cast<int>(node)));
    }
}

void SumStream::go_on(std::size_t open, std::size_t end) {
    open_ = cut_.before(open);
    end_ = cut_.before(end);
}

bool SumStream::stops() const {
    return combined_ >= end_ && std::ranges::all_of(peers_, [this](const Peer& peer) {
               return completed(peer.out) >= end_ && completed(peer.in) >= end_;
           });
}

bool SumStream::finished() const {
    return combined_ == pieces_ && std::ranges::all_of(peers_, [this](const Peer& peer) {
               return next_of(peer.out) == Next::kNothing && next_of(peer.in) == Next::kNothing &&
                      !peer.out.in_flight && !peer.in.in_flight;
           });
}

/// Returns the kind of the next message in a direction.
SumStream::Next SumStream::next_of(const Direction& direction) const {
    if (direction.sums < pieces_ && (direct_ || direction.sums - direction.results <= kLag)) return Next::kSums;
    return !direct_ && direction.results < pieces_ ? Next::kResult : Next::kNothing;
}

/// Returns the number of pieces whose messages in a direction are all done.
std::size_t SumStream::completed(const Direction& direction) const {
    const bool last_in_flight = direction.in_flight && direction.phase == (direct_ ? Phase::kSums : Phase::kResult);
    return (direct_ ? direction.sums : direction.results) - (last_in_flight ? 1 : 0);
}

/// Returns the number of pieces whose sums from a peer have all been received.
std::size_t SumStream::arrived(const Peer& peer) {
    return peer.in.sums - (peer.in.in_flight && peer.in.phase == Phase::kSums ? 1 : 0);
}

/// Returns the part of a piece that a node adds up. All ranges here are elements of the buffers.
Range SumStream::part_of(std::size_t node, std::size_t number) const {
    const Range whole = cut_.at(number);
    if (direct_) return gets_any(node) ? whole : Range{whole.begin, whole.begin};
    const Range share = part(whole.size(), nodes_, node, parts_.grain);
    return {whole.begin + share.begin, whole.begin + share.end};
}

/// Returns whether a node has a rank that gets the result.
bool SumStream::gets_any(std::size_t node) const {
    return parts_.operation.kind != OpKind::kReduce ||
           parts_.context.topology.node_of(parts_.operation.root) == static_cast<int>(node);
}

/// Returns whether the slot of a piece is free.
bool SumStream::has_slot(std::size_t number) const {
    if (number < kDepth) return true;
    const std::size_t before = number - kDepth;
    return combined_ > before &&
           std::ranges::all_of(peers_, [&](const Peer& peer) { return completed(peer.out) > before; });
}

/// Reduces a piece over the own node. Returns false if it has no slot yet, or its window is not open.
bool SumStream::reduce(std::size_t number) {
    if (number < reduced_) return true;
    if (number >= open_ || !has_slot(number)) return false;
    ++reduced_;
    const Range range = cut_.at(number);
    if (!memory_.in_place() && !range.empty()) {
        const auto from = parts_.sources(range.begin);
        auto* const to =
            const_cast<std::byte*>(memory_.sums(number, range.begin));  // in scratch memory, as they are not in place
        parts_.reduction.reduce(from.data(), from.size(), range.size(), to);
        parts_.context.node.wait.check_read(parts_.operation);
    }
    combine_arrived();
    return true;
}

bool SumStream::may_combine(std::size_t number) const {
    if (number >= reduced_) return false;
    if (part_of(own_node_, number).empty()) return true;
    return std::ranges::all_of(peers_, [&](const Peer& peer) {
        // A message that is still being sent must not be overwritten with the sum.
        const bool overwrites = direct_ && memory_.in_place() && completed(peer.out) <= number;
        return arrived(peer) > number && !overwrites;
    });
}

void SumStream::combine_arrived() {
    while (combined_ < pieces_ && may_combine(combined_)) combine(combined_++);
}

/// Adds up the sums of all nodes for the own part, in node order.
void SumStream::combine(std::size_t number) {
    const Range range = part_of(own_node_, number);
    if (range.empty()) return;
    std::vector<const void*> from;
    for (std::size_t node = 0; node < nodes_; ++node)
        from.push_back(node == own_node_ ? memory_.sums(number, range.begin) : memory_.inbox(number, node));
    const Reduction& reduction = parts_.reduction;
    if (memory_.width() == parts_.width) {  // sums have the elements' type
        std::vector<void*> to = parts_.outputs(range.begin);
        if (to.empty()) to.push_back(memory_.result(number, range));
        return reduction.reduce_into(from.data(), from.size(), range.size(), parts_.scale, to.data(), to.size());
    }
    std::byte* const total = memory_.inbox(number, own_node_);
    reduction.combine(from.data(), from.size(), range.size(), total);
    reduction.finish(total, range.size(), parts_.scale, memory_.result(number, range));
    parts_.spread(range);
}

NextOut SumStream::next_out(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    for (;;) {
        const Next next = next_of(out);
        if (next == Next::kNothing) return {};
        if (next == Next::kSums) {
            const std::size_t number = out.sums;
            if (!reduce(number)) return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
            ++out.sums;
            const Range range = part_of(node, number);
            if (range.empty() && !(opening_ && number == 0)) continue;
            out.in_flight = true;
            out.phase = Phase::kSums;
            return {
                .readiness = Readiness::kNow,
                .step = 2 * static_cast<std::uint32_t>(number),
                .bytes = {range.empty() ? nullptr : memory_.sums(number, range.begin), range.size() * memory_.width()}};
        }
        const std::size_t number = out.results;
        if (combined_ <= number) return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
        ++out.results;
        const Range range = part_of(own_node_, number);
        if (range.empty() || !gets_any(node)) continue;
        out.in_flight = true;
        out.phase = Phase::kResult;
        return {.readiness = Readiness::kNow,
                .step = 2 * static_cast<std::uint32_t>(number) + 1,
                .bytes = {memory_.result(number, range), range.size() * parts_.width}};
    }
}

NextIn SumStream::next_in(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    for (;;) {
        const Next next = next_of(in);
        if (next == Next::kNothing) return {};
        if (next == Next::kSums) {
            const std::size_t number = in.sums;
            if (!has_slot(number)) return {.readiness = Readiness::kLater, .step = 0, .bytes = {}};
            ++in.sums;
            const Range range = part_of(own_node_, number);
            if (range.empty() && !(opening_ && number == 0)) continue;
            in.in_flight = true;
            in.phase = Phase::kSums;
            return {.readiness = Readiness::kNow,
                    .step = 2 * static_cast<std::uint32_t>(number),
                    .bytes = {memory_.inbox(number, node), range.size() * memory_.width()}};
        }
        const std::size_t number = in.results++;
        const Range range = part_of(node, number);
        if (range.empty() || !gets_any(own_node_)) continue;
        in.in_flight = true;
        in.phase = Phase::kResult;
        return {.readiness = Readiness::kNow,
                .step = 2 * static_cast<std::uint32_t>(number) + 1,
                .bytes = {memory_.result(number, range), range.size() * parts_.width}};
    }
}

void SumStream::sent(std::size_t peer) {
    peers_[peer].out.in_flight = false;
    combine_arrived();
}

void SumStream::received(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    in.in_flight = false;
    if (in.phase == Phase::kSums) return combine_arrived();
    parts_.spread(part_of(node, in.results - 1));
}

/// A node that adds up has kDepth slots for each peer, and frees one when the sums of all nodes for that piece have
/// arrived. So from the message after kDepth on it may wait for a third node. With `direct` only nodes that get the
/// result add up, otherwise all do.
bool SumStream::out_depends(std::size_t peer) const {
    const auto& [node, out, in] = peers_[peer];
    const bool adds_up = !direct_ || gets_any(node);
    return peers_.size() > 1 && out.in_flight && out.phase == Phase::kSums && out.sums > kDepth && adds_up;
}

/// A result depends on the sums of all nodes. A node that adds up itself sends only as many sums as it has slots for.
bool SumStream::in_depends(std::size_t peer) const {
    const auto& [node, out, in] = peers_[peer];
    if (peers_.size() == 1 || !in.in_flight) return false;
    return in.phase == Phase::kResult || (direct_ && in.sums > kDepth && gets_any(node));
}

}  // namespace ddp::detail

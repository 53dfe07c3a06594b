#include "worker_lib/src/native/sum_stream.hpp"

#include <algorithm>

namespace ddp::detail {

namespace {

/// Small enough that a piece stays in the second-level cache and the pipeline is soon full, large enough that what a
/// message costs does not matter.
constexpr std::size_t kMostChunkBytes = 256u << 10;
constexpr std::size_t kLeastChunkBytes = 16u << 10;
/// What the messages of one piece may be together: many nodes get smaller ones.
constexpr std::size_t kPieceBytes = 2u << 20;
constexpr std::size_t kLag = 1;
constexpr std::size_t kDepth = 4;
static_assert(kDepth > kLag);

}  // namespace

std::size_t SumStream::chunk_elements(std::size_t nodes, std::size_t width) {
    const std::size_t bytes = std::clamp(kPieceBytes / nodes, kLeastChunkBytes, kMostChunkBytes);
    return bytes / kLeastChunkBytes * kLeastChunkBytes / width;
}

SumStream::SumStream(const AllReduceParts& parts, NetworkAlgorithm algorithm, const Windows& windows, bool opening)
    : parts_(parts),
      direct_(algorithm == NetworkAlgorithm::kDirect),
      opening_(opening),
      nodes_(parts.team.nodes()),
      own_node_(static_cast<std::size_t>(parts.team.topology.own_node)),
      width_(parts.reduction.accumulator_bytes),
      chunk_(chunk_elements(nodes_, width_)),
      cut_{windows, direct_ ? chunk_ : chunk_ * nodes_},
      pieces_(cut_.number()),
      in_place_(parts.team.node.size() == 1 && width_ == parts.width) {
    for (std::size_t node = 0; node < nodes_; ++node) {
        if (node == own_node_) continue;
        peers_.push_back({.node = node, .out = {}, .in = {}});
        ranks_.push_back(parts.team.topology.counterpart(static_cast<int>(node)));
    }
    const std::size_t depth = std::min(kDepth, pieces_);
    const std::size_t chunk = std::min(chunk_, windows.largest_slice()) * width_;
    const std::size_t whole = std::min(cut_.most, windows.largest_slice()) * width_;
    if (!in_place_) sums_ = parts.team.scratch.sums.first(depth * whole);
    inbox_ = parts.team.scratch.inbox.first(depth * (nodes_ + 1) * chunk);
}

void SumStream::go_on(std::size_t open, std::size_t end) {
    open_ = cut_.before(open);
    end_ = cut_.before(end);
}

bool SumStream::stops() const {
    return combined_ >= end_ && std::ranges::all_of(peers_, [this](const Peer& peer) {
               return through(peer.out) >= end_ && through(peer.in) >= end_;
           });
}

bool SumStream::finished() const {
    return combined_ == pieces_ && std::ranges::all_of(peers_, [this](const Peer& peer) {
               return next_of(peer.out) == Next::kNothing && next_of(peer.in) == Next::kNothing && !peer.out.in_hand &&
                      !peer.in.in_hand;
           });
}

SumStream::Next SumStream::next_of(const Line& line) const {
    if (line.sums < pieces_ && (direct_ || line.sums - line.results <= kLag)) return Next::kSums;
    return !direct_ && line.results < pieces_ ? Next::kResult : Next::kNothing;
}

std::size_t SumStream::through(const Line& line) const {
    const bool last_in_hand = line.in_hand && line.phase == (direct_ ? Phase::kSums : Phase::kResult);
    return (direct_ ? line.sums : line.results) - (last_in_hand ? 1 : 0);
}

std::size_t SumStream::arrived(const Peer& peer) {
    return peer.in.sums - (peer.in.in_hand && peer.in.phase == Phase::kSums ? 1 : 0);
}

/// What a node adds up of a piece: elements of the buffers, as all ranges here.
Range SumStream::part_of(std::size_t node, std::size_t number) const {
    const Range whole = cut_.at(number);
    if (direct_) return gets_any(node) ? whole : Range{whole.begin, whole.begin};
    const Range share = part(whole.size(), nodes_, node, parts_.grain);
    return {whole.begin + share.begin, whole.begin + share.end};
}

/// Whether a node holds a rank that gets the result.
bool SumStream::gets_any(std::size_t node) const {
    return parts_.operation.kind != OpKind::kReduce ||
           parts_.team.topology.node_of(parts_.operation.root) == static_cast<int>(node);
}

bool SumStream::has_place(std::size_t number) const {
    if (number < kDepth) return true;
    const std::size_t before = number - kDepth;
    return combined_ > before &&
           std::ranges::all_of(peers_, [&](const Peer& peer) { return through(peer.out) > before; });
}

/// Of the own node, from `element` on.
const std::byte* SumStream::sums(std::size_t number, std::size_t element) const {
    if (in_place_) return parts_.own.input.data + element * width_;
    const std::size_t depth = std::min(kDepth, pieces_);
    return sums_.data() + (number % kDepth) * (sums_.size() / depth) + (element - cut_.at(number).begin) * width_;
}

std::byte* SumStream::inbox(std::size_t number, std::size_t node) const {
    const std::size_t depth = std::min(kDepth, pieces_);
    return inbox_.data() + ((number % kDepth) * (nodes_ + 1) + node) * (inbox_.size() / depth / (nodes_ + 1));
}

/// Where finished elements go: to their first owner here, or if they have none here, beside the inboxes.
std::byte* SumStream::result(std::size_t number, Range range) const {
    std::byte* const owner = parts_.landing(range.begin);
    return owner != nullptr ? owner : inbox(number, nodes_);
}

/// False: there is no place for it yet, or its window is not open.
bool SumStream::reduce(std::size_t number) {
    if (number < reduced_) return true;
    if (number >= open_ || !has_place(number)) return false;
    ++reduced_;
    const Range range = cut_.at(number);
    if (!in_place_ && !range.empty()) {
        const auto from = parts_.sources(range.begin);
        auto* const to = const_cast<std::byte*>(sums(number, range.begin));  // in sums_, which is ours
        parts_.reduction.reduce(from.data(), from.size(), range.size(), to);
        parts_.team.node.check_read(parts_.operation);
    }
    combine_what_is_there();
    return true;
}

bool SumStream::may_combine(std::size_t number) const {
    if (number >= reduced_) return false;
    if (part_of(own_node_, number).empty()) return true;
    return std::ranges::all_of(peers_, [&](const Peer& peer) {
        // What is being sent to one peer must not be overwritten with the sum.
        const bool overwrites = direct_ && in_place_ && through(peer.out) <= number;
        return arrived(peer) > number && !overwrites;
    });
}

void SumStream::combine_what_is_there() {
    while (combined_ < pieces_ && may_combine(combined_)) combine(combined_++);
}

/// Adds up all nodes' sums of our part, in their order.
void SumStream::combine(std::size_t number) {
    const Range range = part_of(own_node_, number);
    if (range.empty()) return;
    std::vector<const void*> from;
    for (std::size_t node = 0; node < nodes_; ++node)
        from.push_back(node == own_node_ ? sums(number, range.begin) : inbox(number, node));
    const Reduction& reduction = parts_.reduction;
    if (width_ == parts_.width) {  // sums are elements, too
        std::vector<void*> to = parts_.outputs(range.begin);
        if (to.empty()) to.push_back(result(number, range));
        return reduction.reduce_into(from.data(), from.size(), range.size(), parts_.scale, to.data(), to.size());
    }
    std::byte* const total = inbox(number, own_node_);
    reduction.combine(from.data(), from.size(), range.size(), total);
    reduction.finish(total, range.size(), parts_.scale, result(number, range));
    parts_.spread(range);
}

NextOut SumStream::next_out(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    for (;;) {
        const Next next = next_of(out);
        if (next == Next::kNothing) return {};
        if (next == Next::kSums) {
            const std::size_t number = out.sums;
            if (!reduce(number)) return {.turn = Turn::kLater, .step = 0, .bytes = {}};
            ++out.sums;
            const Range range = part_of(node, number);
            if (range.empty() && !(opening_ && number == 0)) continue;
            out.in_hand = true;
            out.phase = Phase::kSums;
            return {.turn = Turn::kNow,
                    .step = 2 * static_cast<std::uint32_t>(number),
                    .bytes = {range.empty() ? nullptr : sums(number, range.begin), range.size() * width_}};
        }
        const std::size_t number = out.results;
        if (combined_ <= number) return {.turn = Turn::kLater, .step = 0, .bytes = {}};
        ++out.results;
        const Range range = part_of(own_node_, number);
        if (range.empty() || !gets_any(node)) continue;
        out.in_hand = true;
        out.phase = Phase::kResult;
        return {.turn = Turn::kNow,
                .step = 2 * static_cast<std::uint32_t>(number) + 1,
                .bytes = {result(number, range), range.size() * parts_.width}};
    }
}

NextIn SumStream::next_in(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    for (;;) {
        const Next next = next_of(in);
        if (next == Next::kNothing) return {};
        if (next == Next::kSums) {
            const std::size_t number = in.sums;
            if (!has_place(number)) return {.turn = Turn::kLater, .step = 0, .bytes = {}};
            ++in.sums;
            const Range range = part_of(own_node_, number);
            if (range.empty() && !(opening_ && number == 0)) continue;
            in.in_hand = true;
            in.phase = Phase::kSums;
            return {.turn = Turn::kNow,
                    .step = 2 * static_cast<std::uint32_t>(number),
                    .bytes = {inbox(number, node), range.size() * width_}};
        }
        const std::size_t number = in.results++;
        const Range range = part_of(node, number);
        if (range.empty() || !gets_any(own_node_)) continue;
        in.in_hand = true;
        in.phase = Phase::kResult;
        return {.turn = Turn::kNow,
                .step = 2 * static_cast<std::uint32_t>(number) + 1,
                .bytes = {result(number, range), range.size() * parts_.width}};
    }
}

void SumStream::sent(std::size_t peer) {
    peers_[peer].out.in_hand = false;
    combine_what_is_there();
}

void SumStream::received(std::size_t peer) {
    auto& [node, out, in] = peers_[peer];
    in.in_hand = false;
    if (in.phase == Phase::kSums) return combine_what_is_there();
    parts_.spread(part_of(node, in.results - 1));
}

/// Who adds up takes no more sums than it has places for those of the others.
bool SumStream::out_depends(std::size_t peer) const {
    const auto& [node, out, in] = peers_[peer];
    return peers_.size() > 1 && out.in_hand && out.phase == Phase::kSums && out.sums > kDepth && gets_any(node);
}

/// A result is added up of what comes from all; and who adds up, too, sends as many sums as it has places for.
bool SumStream::in_depends(std::size_t peer) const {
    const auto& [node, out, in] = peers_[peer];
    if (peers_.size() == 1 || !in.in_hand) return false;
    return in.phase == Phase::kResult || (direct_ && in.sums > kDepth && gets_any(node));
}

}  // namespace ddp::detail

// All-reduce and reduce inside a node: reduce-scatter + all-gather over shared memory, in one pass (Thakur,
// Rabenseifner, Gropp 2005, whose messages become loads and stores here).
//
// Steps, for n ranks and a buffer of S bytes:
//   1. Each rank announces its buffers, and waits until all have (Meetings).
//   2. Rank r reduces slice r of all n inputs, in rank order, and stores the result to all n outputs, or to the root's.
//   3. Barrier.
// Cost: each rank reads S bytes and writes S, without scratch memory. The fixed order gives the same bits wherever the
// buffer is cut. A ring would round sums of 16 bits n-1 times, in an order that depends on the position.
//
// Buffers outside the shared heap ("foreign") pass through staging slots piece by piece: those slices of a foreign
// input that peers reduce, and those slices of a foreign output that peers have reduced. The next piece is staged
// before the barrier of the current one, so there is one barrier for each piece. If ranks share cores and no buffer is
// foreign, SharedWork hands out the slices in parts to the ranks that run.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker_lib/src/kernels/fetch_ahead.hpp"
#include "worker_lib/src/kernels/stream_copy.hpp"
#include "worker_lib/src/native/collectives/all_reduce_parts.hpp"
#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

namespace {

/// Room for a piece in a slot. Buffers that lie in no cache use pieces of half that size, which stay in a second-level
/// cache of 1 MiB with all that belongs to them.
constexpr std::size_t kSharedPieceBytes = 512u << 10;
constexpr std::size_t kUncachedBytes = 8u << 20;

/// Part of a slice in SharedWork. Small, because a rank that is descheduled in the middle of one delays all others.
constexpr std::size_t kPartBytes = 128u << 10;

/// A staging slot holds two pieces of the input, the current and the next one, and two of the result, the current and
/// the previous one.
enum class Area : std::size_t { kInput = 0, kResult = kResultOffset };
constexpr std::size_t kSlotBytes = kResultOffset + 2 * kSharedPieceBytes;
static_assert(2 * kSharedPieceBytes <= kResultOffset && kSlotBytes <= kStagingBytes);

/// One all-reduce or reduce inside a node, of one rank.
class NodeAllReduce {
public:
    NodeAllReduce(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own)
        : parts_(context, operation, own),
          node_(context.node),
          own_(own),
          long_(parts_.bytes() >= StagingChoice::kLeast),
          uncached_(parts_.bytes() >= kUncachedBytes) {}

    void run(bool opened) {
        const std::size_t count = parts_.operation.buffer.count;
        const std::size_t piece = (uncached_ ? kSharedPieceBytes / 2 : kSharedPieceBytes) / parts_.width;
        const bool alone = node_.ranks.size() == 1;
        OperationScratch& scratch = parts_.context.scratch;
        streams_ = long_ && scratch.staging.last(parts_.bytes());  // until the choice for this operation is known
        std::chrono::duration<double> taken{};
        if (!alone && own_.input.is_foreign()) {
            prepare_slot();
            const auto began = ddprun::Clock::now();
            stage({0, std::min(piece, count)}, 0);
            taken = ddprun::Clock::now() - began;
        }
        if (opened) {
            node_.meetings.join(parts_.operation);
        } else {
            parts_.meet(long_ && scratch.staging.streams(parts_.bytes()));
        }
        if (alone || !(node_.meetings.any_foreign(Side::kInput) || node_.meetings.any_foreign(Side::kOutput))) {
            if (!alone && node_.ranks.oversubscribed()) return share_out({0, count});
            reduce_whole();
            return node_.barrier.arrive_and_wait(parts_.operation);
        }
        if (node_.meetings.any_foreign(Side::kOutput)) prepare_slot();
        streams_ = node_.meetings.streams();
        fetches_ = uncached_ && !streams_;
        const auto began = ddprun::Clock::now();
        for (std::size_t first = 0, number = 0; first < count; first += piece, ++number) {
            const Range current{first, std::min(first + piece, count)};
            reduce_own_slice(current, number);
            stage({current.end, std::min(current.end + piece, count)}, number + 1);
            node_.barrier.arrive_and_wait(parts_.operation);
            take(current, number);
        }
        taken += ddprun::Clock::now() - began;
        if (long_) scratch.staging.took(streams_, taken.count(), parts_.bytes());
    }

    /// Reduces the own slice as one piece, without staging.
    void reduce_whole() const {
        if (node_.ranks.size() > 1 || own_.input.data != own_.output.data)
            reduce_own_slice({0, parts_.operation.buffer.count}, 0);
    }

private:
    /// Reduces the slices in parts, each of which goes to the rank that claims it first. A rank begins with its own
    /// slice.
    void share_out(Range all) const {
        const std::size_t longest = slice(all, 0).size();
        const std::size_t least = (longest + SharedWork::kMaxParts - 1) / SharedWork::kMaxParts;
        const std::size_t each =
            std::max(kPartBytes / parts_.width, (least + parts_.grain - 1) / parts_.grain * parts_.grain);
        node_.shared_work.run(parts_.operation, (longest + each - 1) / each, [&](int owner, std::size_t part) {
            const Range theirs = slice(all, owner);
            const std::size_t begin = std::min(theirs.begin + part * each, theirs.end);
            reduce({begin, std::min(begin + each, theirs.end)}, all, 0);
        });
    }

    void prepare_slot() const {
        if (long_ && !std::exchange(parts_.context.scratch.staging_prepared, true))
            node_.ranks.prepare_staging(kSlotBytes);
    }

    /// Returns the slice of `piece` that the rank at `index` reduces.
    Range slice(Range piece, int index) const {
        const Range range = part(piece.size(), static_cast<std::size_t>(node_.ranks.size()),
                                 static_cast<std::size_t>(index), parts_.grain);
        return {piece.begin + range.begin, piece.begin + range.end};
    }

    /// Returns the address of element `at` of piece `number` in a rank's slot.
    std::byte* slot(int index, Area area, std::size_t number, Range piece, std::size_t at) const {
        const std::size_t offset = static_cast<std::size_t>(area) + number % 2 * kSharedPieceBytes;
        return node_.ranks.staging(index) + offset + (at - piece.begin) * parts_.width;
    }

    void copy(std::byte* to, const std::byte* from, std::size_t elements) const {
        if (elements > 0) std::memcpy(to, from, elements * parts_.width);  // memcpy requires non-null pointers
    }

    void copy_to_slot(std::byte* to, const std::byte* from, std::size_t elements) const {
        if (!streams_) return copy(to, from, elements);
        if (elements > 0) stream_copy(to, from, elements * parts_.width);
    }

    /// Copies those slices of a foreign input that peers reduce to the own slot.
    void stage(Range piece, std::size_t number) const {
        if (!own_.input.is_foreign() || piece.empty()) return;
        const Range mine = slice(piece, node_.ranks.own_index());
        for (const Range others : {Range{piece.begin, mine.begin}, Range{mine.end, piece.end}}) {
            copy_to_slot(slot(node_.ranks.own_index(), Area::kInput, number, piece, others.begin),
                         own_.input.data + others.begin * parts_.width, others.size());
        }
    }

    void reduce_own_slice(Range piece, std::size_t number) const {
        reduce(slice(piece, node_.ranks.own_index()), piece, number);
    }

    /// Reduces elements `mine`, which lie in the own slice of `piece`; in any slice if no buffer is foreign.
    void reduce(Range mine, Range piece, std::size_t number) const {
        if (mine.empty()) return;
        const int self = node_.ranks.own_index();
        const std::size_t offset = mine.begin * parts_.width;
        auto& from = parts_.context.scratch.sources;
        from.clear();
        for (int i = 0; i < node_.ranks.size(); ++i) {
            from.push_back(i == self ? own_.input.data + offset
                           : node_.meetings.is_foreign(i, Side::kInput)
                               ? slot(i, Area::kInput, number, piece, mine.begin)
                               : node_.meetings.buffer(i, Side::kInput) + offset);
        }
        auto& to = parts_.context.scratch.outputs;
        to.clear();
        if (parts_.receives()) to.push_back(own_.output.data + offset);
        bool peers_copy = false;  // from the own slot
        for (int i = 0; i < node_.ranks.size(); ++i) {
            if (i == self || !parts_.gets_result(node_.ranks.rank_at(i))) continue;
            const bool copies = node_.meetings.is_foreign(i, Side::kOutput);
            peers_copy = peers_copy || copies;
            if (!copies) to.push_back(node_.meetings.buffer(i, Side::kOutput) + offset);
        }
        std::byte* const result = slot(self, Area::kResult, number, piece, mine.begin);
        const bool copied = peers_copy && streams_ && parts_.receives();  // from the own output, which is first
        if (peers_copy && !copied) to.push_back(result);
        const auto* const first = static_cast<const std::byte*>(to.empty() ? nullptr : to.front());
        reduce_listed(mine.size());  // changes both lists
        if (copied) copy_to_slot(result, first, mine.size());
    }

    /// Reduces `count` elements of the scratch's sources into its outputs.
    void reduce_listed(std::size_t count) const {
        auto& from = parts_.context.scratch.sources;
        auto& to = parts_.context.scratch.outputs;
        const auto reduce_next = [&](std::size_t elements) {
            parts_.reduction.reduce_into(from.data(), from.size(), elements, parts_.scale, to.data(), to.size());
        };
        if (!fetches_) return reduce_next(count);
        const auto* const own = static_cast<const std::byte*>(from[static_cast<std::size_t>(node_.ranks.own_index())]);
        fetching_ahead(own, count * parts_.width, [&](std::size_t, std::size_t size) {
            reduce_next(size / parts_.width);
            for (auto& source : from) source = static_cast<const std::byte*>(source) + size;
            for (auto& output : to) output = static_cast<std::byte*>(output) + size;
        });
    }

    /// Copies those slices that peers have reduced to a foreign output.
    void take(Range piece, std::size_t number) const {
        if (!parts_.receives() || !own_.output.is_foreign()) return;
        for (int i = 0; i < node_.ranks.size(); ++i) {
            if (i == node_.ranks.own_index()) continue;
            const Range theirs = slice(piece, i);
            copy(own_.output.data + theirs.begin * parts_.width, slot(i, Area::kResult, number, piece, theirs.begin),
                 theirs.size());
        }
    }

    const AllReduceParts parts_;
    Node& node_;
    const OwnBuffers& own_;
    const bool long_;       ///< long enough that StagingChoice matters
    const bool uncached_;   ///< too long for the caches
    bool streams_ = false;  ///< copy to the slot past the caches
    bool fetches_ = false;  ///< prefetch the memory that is reduced
};

}  // namespace

void all_reduce(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own, Step step) {
    if (context.nodes() > 1) return all_reduce_across(context, operation, own);
    if (step == Step::kReduced) return context.node.barrier.arrive_and_wait(operation);
    if (step == Step::kArrived) return context.node.barrier.wait(operation);
    NodeAllReduce(context, operation, own).run(step == Step::kOpened);
}

Step reduce_and_arrive(const CollectiveContext& context, const Operation& operation, const OwnBuffers& own) noexcept {
    NodeAllReduce(context, operation, own).reduce_whole();
    if (context.node.failure.any_gives_up(operation)) return Step::kReduced;
    context.node.barrier.arrive();
    return Step::kArrived;
}

}  // namespace ddp::detail

// All-reduce and reduce inside a node: each rank reduces its slice of everybody's input and stores the result to
// everybody's output, or the root's only: one pass over the memory, two barriers. What peers need of a foreign input
// passes through its owner's staging slot piece by piece, and so does what a foreign output needs of theirs; the own
// slice never does. While a piece is reduced its successor is staged, so there is one barrier for each. Where ranks
// share cores and no buffer is foreign, slices are shared out in parts to whoever runs.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker_lib/src/native/all_reduce_parts.hpp"
#include "worker_lib/src/native/fetch_ahead.hpp"
#include "worker_lib/src/native/partition.hpp"
#include "worker_lib/src/native/stream_copy.hpp"

namespace ddp::detail {

namespace {

/// Room for a piece in a slot. Buffers that lie in no cache go in half of that: with all that belongs to it, it stays
/// in a second-level cache of 1 MiB.
constexpr std::size_t kPieceBytes = 512u << 10;
constexpr std::size_t kUncachedBytes = 8u << 20;

/// Of a slice that is shared out: small enough that who is taken off its core in the middle of one has not taken much
/// along.
constexpr std::size_t kPartBytes = 128u << 10;

/// A staging slot holds pieces of the input in its first half and of the result in the second, of each the current one
/// and the one before or after it.
enum class Area : std::size_t { kInput = 0, kResult = kResultOffset };
constexpr std::size_t kSlotBytes = kResultOffset + 2 * kPieceBytes;
static_assert(2 * kPieceBytes <= kResultOffset && kSlotBytes <= kStagingBytes);

class NodeAllReduce {
public:
    NodeAllReduce(const Team& team, const Operation& operation, const OwnBuffers& own)
        : parts_(team, operation, own),
          node_(team.node),
          own_(own),
          long_(parts_.bytes() >= StagingChoice::kLeast),
          uncached_(parts_.bytes() >= kUncachedBytes) {}

    void run(bool opened) {
        const std::size_t count = parts_.operation.buffer.count;
        const std::size_t piece = (uncached_ ? kPieceBytes / 2 : kPieceBytes) / parts_.width;
        const bool alone = node_.size() == 1;
        OperationScratch& scratch = parts_.team.scratch;
        streams_ = long_ && scratch.staging.last(parts_.bytes());  // until this one's choice is known
        std::chrono::duration<double> taken{};
        if (!alone && own_.input.is_foreign()) {
            prepare_slot();
            const auto began = ddprun::Clock::now();
            stage({0, std::min(piece, count)}, 0);
            taken = ddprun::Clock::now() - began;
        }
        if (opened) {
            node_.join(parts_.operation);
        } else {
            parts_.meet(long_ && scratch.staging.streams(parts_.bytes()));
        }
        if (alone || !(node_.any_foreign(Side::kInput) || node_.any_foreign(Side::kOutput))) {
            if (!alone && node_.crowded()) return share_out({0, count});
            reduce_whole();
            return node_.barrier(parts_.operation);
        }
        if (node_.any_foreign(Side::kOutput)) prepare_slot();
        streams_ = node_.streams();
        fetches_ = uncached_ && !streams_;
        const auto began = ddprun::Clock::now();
        for (std::size_t first = 0, number = 0; first < count; first += piece, ++number) {
            const Range current{first, std::min(first + piece, count)};
            reduce_own_slice(current, number);
            stage({current.end, std::min(current.end + piece, count)}, number + 1);
            node_.barrier(parts_.operation);
            take(current, number);
        }
        taken += ddprun::Clock::now() - began;
        if (long_) scratch.staging.took(streams_, taken.count(), parts_.bytes());
    }

    /// All of it in one piece, none of it staged.
    void reduce_whole() const {
        if (node_.size() > 1 || own_.input.data != own_.output.data)
            reduce_own_slice({0, parts_.operation.buffer.count}, 0);
    }

private:
    /// The slices go in parts to whoever runs, each rank's own first: the last to come can do all that is left, and
    /// waits for nobody.
    void share_out(Range all) const {
        const std::size_t longest = slice(all, 0).size();
        const std::size_t least = (longest + kMostShareParts - 1) / kMostShareParts;
        const std::size_t each =
            std::max(kPartBytes / parts_.width, (least + parts_.grain - 1) / parts_.grain * parts_.grain);
        node_.share_out(parts_.operation, (longest + each - 1) / each, [&](int owner, std::size_t part) {
            const Range theirs = slice(all, owner);
            const std::size_t begin = std::min(theirs.begin + part * each, theirs.end);
            reduce({begin, std::min(begin + each, theirs.end)}, all, 0);
        });
    }

    void prepare_slot() const {
        if (long_ && !std::exchange(parts_.team.scratch.staging_prepared, true)) node_.prepare_staging(kSlotBytes);
    }

    /// The slice of elements `piece` that the rank at `index` reduces.
    Range slice(Range piece, int index) const {
        const Range range =
            part(piece.size(), static_cast<std::size_t>(node_.size()), static_cast<std::size_t>(index), parts_.grain);
        return {piece.begin + range.begin, piece.begin + range.end};
    }

    /// Where element `at` of piece `number` lies in a rank's slot.
    std::byte* slot(int index, Area area, std::size_t number, Range piece, std::size_t at) const {
        const std::size_t place = static_cast<std::size_t>(area) + number % 2 * kPieceBytes;
        return node_.staging(index) + place + (at - piece.begin) * parts_.width;
    }

    void copy(std::byte* to, const std::byte* from, std::size_t elements) const {
        if (elements > 0) std::memcpy(to, from, elements * parts_.width);  // which refuses null even for nothing
    }

    void copy_to_slot(std::byte* to, const std::byte* from, std::size_t elements) const {
        if (!streams_) return copy(to, from, elements);
        if (elements > 0) stream_copy(to, from, elements * parts_.width);
    }

    void stage(Range piece, std::size_t number) const {
        if (!own_.input.is_foreign() || piece.empty()) return;
        const Range mine = slice(piece, node_.own_index());
        for (const Range others : {Range{piece.begin, mine.begin}, Range{mine.end, piece.end}}) {
            copy_to_slot(slot(node_.own_index(), Area::kInput, number, piece, others.begin),
                         own_.input.data + others.begin * parts_.width, others.size());
        }
    }

    void reduce_own_slice(Range piece, std::size_t number) const {
        reduce(slice(piece, node_.own_index()), piece, number);
    }

    /// `mine`: of the own slice of `piece`; of any where no buffer is foreign.
    void reduce(Range mine, Range piece, std::size_t number) const {
        if (mine.empty()) return;
        const int self = node_.own_index();
        const std::size_t offset = mine.begin * parts_.width;
        auto& from = parts_.team.scratch.sources;
        from.clear();
        for (int i = 0; i < node_.size(); ++i) {
            from.push_back(i == self                           ? own_.input.data + offset
                           : node_.is_foreign(i, Side::kInput) ? slot(i, Area::kInput, number, piece, mine.begin)
                                                               : node_.buffer(i, Side::kInput) + offset);
        }
        auto& to = parts_.team.scratch.outputs;
        to.clear();
        if (parts_.receives()) to.push_back(own_.output.data + offset);
        bool others_take = false;
        for (int i = 0; i < node_.size(); ++i) {
            if (i == self || !parts_.gets_result(node_.rank_at(i))) continue;
            const bool takes = node_.is_foreign(i, Side::kOutput);
            others_take = others_take || takes;
            if (!takes) to.push_back(node_.buffer(i, Side::kOutput) + offset);
        }
        std::byte* const result = slot(self, Area::kResult, number, piece, mine.begin);
        const bool copied = others_take && streams_ && parts_.receives();  // from the own output, which comes first
        if (others_take && !copied) to.push_back(result);
        const auto* const first = static_cast<const std::byte*>(to.empty() ? nullptr : to.front());
        reduce_listed(mine.size());  // which uses the lists up
        if (copied) copy_to_slot(result, first, mine.size());
    }

    /// `count` elements of the scratch's sources into its outputs.
    void reduce_listed(std::size_t count) const {
        auto& from = parts_.team.scratch.sources;
        auto& to = parts_.team.scratch.outputs;
        const auto reduce_next = [&](std::size_t elements) {
            parts_.reduction.reduce_into(from.data(), from.size(), elements, parts_.scale, to.data(), to.size());
        };
        if (!fetches_) return reduce_next(count);
        const auto* const own = static_cast<const std::byte*>(from[static_cast<std::size_t>(node_.own_index())]);
        fetching_ahead(own, count * parts_.width, [&](std::size_t, std::size_t size) {
            reduce_next(size / parts_.width);
            for (auto& source : from) source = static_cast<const std::byte*>(source) + size;
            for (auto& output : to) output = static_cast<std::byte*>(output) + size;
        });
    }

    void take(Range piece, std::size_t number) const {
        if (!parts_.receives() || !own_.output.is_foreign()) return;
        for (int i = 0; i < node_.size(); ++i) {
            if (i == node_.own_index()) continue;
            const Range theirs = slice(piece, i);
            copy(own_.output.data + theirs.begin * parts_.width, slot(i, Area::kResult, number, piece, theirs.begin),
                 theirs.size());
        }
    }

    const AllReduceParts parts_;
    Node& node_;
    const OwnBuffers& own_;
    const bool long_;       ///< so that it matters how staging copies
    const bool uncached_;   ///< so that it matters how memory is read
    bool streams_ = false;  ///< copies to the slot past the caches
    bool fetches_ = false;  ///< asks ahead for what it reduces
};

}  // namespace

void all_reduce(const Team& team, const Operation& operation, const OwnBuffers& own, Step step) {
    if (team.nodes() > 1) return all_reduce_across(team, operation, own);
    if (step == Step::kReduced) return team.node.barrier(operation);
    if (step == Step::kArrived) return team.node.wait_at_barrier(operation);
    NodeAllReduce(team, operation, own).run(step == Step::kOpened);
}

Step reduce_and_arrive(const Team& team, const Operation& operation, const OwnBuffers& own) noexcept {
    NodeAllReduce(team, operation, own).reduce_whole();
    if (team.node.any_gives_up(operation)) return Step::kReduced;
    team.node.arrive();
    return Step::kArrived;
}

}  // namespace ddp::detail

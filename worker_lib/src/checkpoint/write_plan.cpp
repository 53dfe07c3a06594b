#include "worker_lib/src/checkpoint/write_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "worker_lib/src/checkpoint/state.hpp"

namespace ddp::detail {
namespace {

using ddprun::checkpoint::kBlockBytes;
using ddprun::checkpoint::Tensor;

/// Bytes of the data that the same ranks have.
struct Segment {
    std::size_t tensor = 0;  ///< index in the state
    std::size_t begin = 0;   ///< in the data
    std::size_t end = 0;
    std::size_t tensor_begin = 0;  ///< of the tensor, in the data
    std::vector<int> holders;      ///< in order
};

/// Returns the ranges of each tensor of the state, by their beginnings.
std::vector<std::vector<OwnedRange>> by_tensor(std::size_t tensors, std::span<const OwnedRange> ranges) {
    std::vector<std::vector<OwnedRange>> sorted(tensors);
    for (const OwnedRange& range : ranges)
        if (range.begin < range.end) sorted[range.tensor].push_back(range);
    for (auto& of_tensor : sorted) std::ranges::stable_sort(of_tensor, {}, &OwnedRange::begin);
    return sorted;
}

/// Appends the segments of one tensor.
void add_segments(std::vector<Segment>& segments, const Tensor& tensor, std::size_t index,
                  std::span<const OwnedRange> ranges, int ranks) {
    std::vector<std::uint64_t> cuts;
    for (const OwnedRange& range : ranges) {
        cuts.push_back(range.begin);
        cuts.push_back(range.end);
    }
    std::ranges::sort(cuts);
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<OwnedRange> active;
    auto next = ranges.begin();
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::erase_if(active, [&](const OwnedRange& range) { return range.end <= cuts[i]; });
        for (; next != ranges.end() && next->begin <= cuts[i]; ++next) active.push_back(*next);
        Segment segment{index, tensor.begin + cuts[i], tensor.begin + cuts[i + 1], tensor.begin, {}};
        for (const OwnedRange& range : active) {
            if (range.rank != OwnedRange::kEveryRank) {
                segment.holders.push_back(range.rank);
                continue;
            }
            segment.holders.resize(static_cast<std::size_t>(ranks));
            std::iota(segment.holders.begin(), segment.holders.end(), 0);
            break;
        }
        std::ranges::sort(segment.holders);
        segments.push_back(std::move(segment));
    }
}

/// Appends a run, or makes the last one longer if both lie together.
void append(std::vector<Run>& runs, const Run& run) {
    if (!runs.empty()) {
        Run& last = runs.back();
        if (last.tensor == run.tensor && last.position + last.bytes == run.position &&
            last.offset + last.bytes == run.offset) {
            last.bytes += run.bytes;
            return;
        }
    }
    runs.push_back(run);
}

/// Walks over the data and notes what concerns one rank.
class Planner {
public:
    Planner(std::size_t data_bytes, int rank, const std::vector<bool>& can_write)
        : rank_(rank),
          can_write_(can_write),
          blocks_((data_bytes + kBlockBytes - 1) / kBlockBytes),
          sends_(can_write.size()),
          receives_(can_write.size()) {
        for (std::size_t i = 0; i < can_write.size(); ++i)
            if (can_write[i]) able_.push_back(static_cast<int>(i));
    }

    void add(const Segment& segment) {
        for (std::size_t begin = segment.begin; begin < segment.end;) {
            const std::size_t block = begin / kBlockBytes;
            const std::size_t end = std::min(segment.end, (block + 1) * kBlockBytes);
            if (begin % kBlockBytes == 0) plan_.writers.push_back(writer_of(block, segment.holders));
            add(segment, begin, end, plan_.writers.back());
            begin = end;
        }
    }

    [[nodiscard]] WritePlan finish() {
        plan_.send_bytes.resize(sends_.size());
        plan_.receive_bytes.resize(receives_.size());
        std::vector<std::size_t> next_received(receives_.size());
        for (std::size_t peer = 0; peer < receives_.size(); ++peer) {
            for (const Run& run : sends_[peer]) {
                plan_.send_bytes[peer] += run.bytes;
                plan_.sends.push_back(run);
            }
            plan_.receive_bytes[peer] = receives_[peer];
            if (peer + 1 < receives_.size()) next_received[peer + 1] = next_received[peer] + receives_[peer];
        }
        std::vector<Run> writes;
        for (Run& run : plan_.writes) {
            if (run.tensor == Run::kReceived) {  // its offset is the sender until here
                std::size_t& next = next_received[run.offset];
                run.offset = next;
                next += run.bytes;
            }
            append(writes, run);
        }
        plan_.writes = std::move(writes);
        return std::move(plan_);
    }

private:
    /// Deals block number `block` of all to some ranks.
    [[nodiscard]] int dealt(std::size_t block, const std::vector<int>& ranks) const {
        return ranks[block * ranks.size() / blocks_];
    }
    [[nodiscard]] int writer_of(std::size_t block, const std::vector<int>& holders) const {
        std::vector<int> able;
        for (const int holder : holders)
            if (can_write_[static_cast<std::size_t>(holder)]) able.push_back(holder);
        return dealt(block, able.empty() ? able_ : able);
    }

    void add(const Segment& segment, std::size_t begin, std::size_t end, int writer) {
        const bool writer_has_it = std::ranges::binary_search(segment.holders, writer);
        const Run own{begin, end - begin, segment.tensor, begin - segment.tensor_begin};
        if (writer_has_it) {
            if (writer == rank_) plan_.writes.push_back(own);
            return;
        }
        const int sender = dealt(begin / kBlockBytes, segment.holders);
        plan_.exchanges = true;
        if (sender == rank_) append(sends_[static_cast<std::size_t>(writer)], own);
        if (writer != rank_) return;
        const auto from = static_cast<std::size_t>(sender);
        plan_.writes.push_back({begin, end - begin, Run::kReceived, from});
        receives_[from] += end - begin;
    }

    int rank_;
    const std::vector<bool>& can_write_;
    std::vector<int> able_;  ///< the ranks that can write
    std::size_t blocks_;
    std::vector<std::vector<Run>> sends_;  ///< by receiver
    std::vector<std::size_t> receives_;    ///< bytes, by sender
    WritePlan plan_;
};

}  // namespace

WritePlan plan_writes(std::span<const Tensor> tensors, std::span<const std::size_t> in_state,
                      std::span<const OwnedRange> ranges, int rank, const std::vector<bool>& can_write) {
    Planner planner(tensors.empty() ? 0 : tensors.back().end(), rank, can_write);
    const auto sorted = by_tensor(tensors.size(), ranges);
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        segments.clear();
        add_segments(segments, tensors[i], in_state[i], sorted[in_state[i]], static_cast<int>(can_write.size()));
        for (const Segment& segment : segments) planner.add(segment);
    }
    return planner.finish();
}

std::string uncovered(std::span<const NamedShard> state, std::span<const OwnedRange> ranges) {
    const auto sorted = by_tensor(state.size(), ranges);
    for (std::size_t i = 0; i < state.size(); ++i) {
        const std::size_t element = size_of(state[i].part.dtype);
        const std::uint64_t bytes = elements_of(state[i]) * element;
        std::uint64_t next = 0;
        for (const OwnedRange& range : sorted[i]) {
            if (range.begin > next) break;
            next = std::max(next, range.end);
        }
        if (next >= bytes) continue;
        std::uint64_t end = bytes;
        for (const OwnedRange& range : sorted[i])
            if (range.begin > next) end = std::min(end, range.begin);
        return fmt::format("elements {} to {} of '{}'", next / element, end / element - 1, state[i].name);
    }
    return {};
}

}  // namespace ddp::detail

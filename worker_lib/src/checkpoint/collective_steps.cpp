#include "worker_lib/src/checkpoint/collective_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/memory_pieces.hpp"
#include "worker_lib/src/checkpoint/state.hpp"
#include "worker_lib/src/checkpoint/together.hpp"

namespace ddp::detail {

std::vector<OwnedRange> ranges_of_all(ProcessGroup& group, std::span<const NamedShard> state, Kind kind) {
    std::vector<std::uint64_t> mine;  // tensor, begin, end
    for (std::size_t i = 0; i < state.size(); ++i) {
        const std::size_t begin = state[i].begin * size_of(state[i].part.dtype);
        if (state[i].part.count > 0) mine.insert(mine.end(), {i, begin, begin + state[i].part.bytes()});
    }
    std::vector<std::size_t> counts{mine.size()};
    std::vector<std::uint64_t> all = mine;
    if (kind == Kind::kParts) {
        const OpOptions options{.timeout = kDiskTimeout, .label = "parts of the checkpoint"};
        counts.resize(static_cast<std::size_t>(group.size()));
        const std::uint64_t count = mine.size();
        group.all_gather(count, counts, options).wait();
        all.resize(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
        group.all_gather_v(mine, all, counts, options).wait();
    }
    std::vector<OwnedRange> ranges;
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        for (const std::size_t end = next + counts[rank]; next < end; next += 3)
            ranges.push_back({all[next], all[next + 1], all[next + 2],
                              kind == Kind::kWhole ? OwnedRange::kEveryRank : static_cast<int>(rank)});
    }
    return ranges;
}

void require_covered(std::span<const NamedShard> state, std::span<const OwnedRange> ranges) {
    if (const std::string missing = uncovered(state, ranges); !missing.empty())
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("cannot checkpoint: no rank has {}. Pass the parts of all ranks, and the whole tensor "
                                "where they all have it",
                                missing));
}

std::vector<bool> flags_of_all(ProcessGroup& group, bool mine, std::string_view label) {
    const std::uint8_t flag = mine ? 1 : 0;
    std::vector<std::uint8_t> flags(static_cast<std::size_t>(group.size()));
    group.all_gather(flag, flags, {.timeout = kDiskTimeout, .label = label}).wait();
    return {flags.begin(), flags.end()};
}

void exchange(ProcessGroup& group, Save& save, std::span<const std::byte> sent) {
    if (!save.planned().exchanges) return;
    group
        .all_to_all_v(sent, save.planned().send_bytes, save.received(), save.planned().receive_bytes,
                      {.timeout = kDiskTimeout, .label = "borders of the checkpoint"})
        .wait();
}

void commit(ProcessGroup& group, Save& save, const SaveFence* fence) {
    const std::vector<std::size_t> counts = save.chunk_counts(group.size());
    std::vector<std::uint64_t> all(group.rank() == 0 ? std::accumulate(counts.begin(), counts.end(), std::size_t{0})
                                                     : 0);
    const std::vector<std::uint64_t>& mine = save.hashes();
    group.gather_v(mine, all, counts, 0, {.timeout = kDiskTimeout, .label = "hashes of the checkpoint"}).wait();
    together(group, "commit checkpoint", [&] {
        if (group.rank() == 0) save.commit(*fence, all);
    });
}

PartsInTransit::PartsInTransit(std::span<const NamedShard> state, std::span<const OwnedRange> ranges, int rank,
                               int self)
    : rank_(rank), state_(state.begin(), state.end()) {
    for (NamedShard& shard : state_) {
        shard.begin = 0;
        shard.part = {nullptr, 0, shard.part.dtype};
    }
    for (const OwnedRange& range : ranges) bytes_ += range.rank == rank ? range.end - range.begin : 0;
    if (self != 0 && self != rank) return;
    memory_.resize(bytes_);
    std::size_t next = 0;
    for (const OwnedRange& range : ranges) {
        if (range.rank != rank) continue;
        NamedShard& shard = state_[range.tensor];
        const std::size_t element = size_of(shard.part.dtype);
        shard.begin = range.begin / element;
        shard.part = {memory_.data() + next, (range.end - range.begin) / element, shard.part.dtype};
        next += range.end - range.begin;
    }
}

void PartsInTransit::send(ProcessGroup& group) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()));
    counts[static_cast<std::size_t>(rank_)] = bytes_;
    const std::span<std::byte> memory(memory_);
    const auto from = group.rank() == 0 ? memory : std::span<std::byte>();
    const auto to = group.rank() == rank_ ? memory : std::span<std::byte>();
    group.scatter_v(from, to, counts, 0, {.timeout = kDiskTimeout, .label = "load checkpoint"}).wait();
}

void PartsInTransit::copy_to(std::span<const NamedShard> state, Staging* staging) const {
    for (std::size_t i = 0; i < state.size(); ++i) {
        const auto* const from = static_cast<const std::byte*>(state_[i].part.data);
        const std::size_t bytes = state[i].part.bytes();
        const std::size_t piece = staging == nullptr ? bytes : staging->piece_bytes();
        for (std::size_t done = 0; done < bytes; done += piece) {
            const std::size_t now = std::min(piece, bytes - done);
            write_memory(range_of(state[i].part, done, now), {from + done, now}, staging);
        }
    }
    if (has_device_memory(state)) staging->finish_writing();
}

}  // namespace ddp::detail

#include "worker_lib/src/group/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/fnv.hpp"
#include "common/text/list.hpp"

namespace ddp::detail {
namespace {

constexpr std::size_t kShownBytes = 256;  // of an item's text; names can be long

std::uint64_t hash_of(std::string_view text) {
    ddprun::Fnv64 fnv;
    fnv.add(text);
    return fnv.value();
}

std::uint64_t hash_of(std::span<const std::string> items) {
    ddprun::Fnv64 fnv;
    for (const std::string& item : items) fnv.add_number(hash_of(item));
    return fnv.value();
}

/// Returns for each position whether all ranks have the same value there. The minimum of ~x is ~(maximum of x), so one
/// reduction gives both.
std::vector<bool> same_everywhere(ProcessGroup& group, std::span<const std::uint64_t> values, std::string_view label,
                                  std::optional<std::chrono::milliseconds> timeout = {}) {
    std::vector<std::uint64_t> both(values.begin(), values.end());
    for (const std::uint64_t value : values) both.push_back(~value);
    group.all_reduce(both, ReduceOp::Min, {.timeout = timeout, .label = label}).wait();
    std::vector<bool> same(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) same[i] = both[i] == ~both[values.size() + i];
    return same;
}

/// Returns the value of each rank, by rank.
std::vector<std::uint64_t> gather(ProcessGroup& group, std::uint64_t mine, std::string_view label) {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
    group.all_gather(mine, all, {.label = label}).wait();
    return all;
}

std::string text_of_rank(ProcessGroup& group, int rank, const std::string& mine, std::string_view label) {
    std::array<std::uint8_t, kShownBytes> bytes{};
    if (group.rank() == rank) std::memcpy(bytes.data(), mine.data(), std::min(mine.size(), bytes.size()));
    group.broadcast(bytes, rank, {.label = label}).wait();
    const auto end = std::find(bytes.begin(), bytes.end(), std::uint8_t{0});
    return {bytes.begin(), end};
}

/// Throws the difference. Collective: every rank knows that the lists differ.
[[noreturn]] void explain(ProcessGroup& group, std::string_view what, std::string_view label,
                          std::span<const std::string> items, std::string_view advice) {
    const auto counts = gather(group, items.size(), label);
    const std::size_t longest = *std::max_element(counts.begin(), counts.end());
    std::vector<std::uint64_t> hashes(longest, 0);  // 0: this rank's list has ended
    for (std::size_t i = 0; i < items.size(); ++i) hashes[i] = hash_of(items[i]);
    const auto same = same_everywhere(group, hashes, label);
    const auto first = static_cast<std::size_t>(std::find(same.begin(), same.end(), false) - same.begin());

    if (first == longest) {  // a collision of 64-bit hashes
        throw Error(ErrorCode::Mismatch, "the ranks disagree on " + std::string(what));
    }

    const auto of_ranks = gather(group, hashes[first], label);
    std::vector<int> differing;
    std::map<std::uint64_t, std::vector<int>> ranks_by_value;
    for (std::size_t r = 0; r < of_ranks.size(); ++r) {
        ranks_by_value[of_ranks[r]].push_back(static_cast<int>(r));
        if (of_ranks[r] != of_ranks[0]) differing.push_back(static_cast<int>(r));
    }
    const std::string mine = first < items.size() ? items[first] : "nothing more";
    const std::string reference = text_of_rank(group, 0, mine, label);
    const std::string other = text_of_rank(group, differing.front(), mine, label);
    throw Error(ErrorCode::Mismatch,
                "the ranks disagree on " + std::string(what) + ": " + group.name_of(0) + " has " + reference +
                    ", but " + group.name_of(differing.front()) + " has " + other +
                    " (ranks that differ from rank 0: " + ddprun::name_ranks(differing) + "). " + std::string(advice),
                outvoted(ranks_by_value));
}

}  // namespace

void require_agreement(ProcessGroup& group, std::string_view what, std::span<const std::string> items,
                       std::string_view advice, std::optional<std::chrono::milliseconds> timeout) {
    const std::array<std::uint64_t, 1> hash{hash_of(items)};
    const std::string label = fmt::format("agree on {}", what);
    if (!same_everywhere(group, hash, label, timeout).front()) explain(group, what, label, items, advice);
}

std::vector<int> outvoted(const std::map<std::uint64_t, std::vector<int>>& ranks_by_value) {
    std::size_t max_size = 0;
    for (const auto& [value, ranks] : ranks_by_value) max_size = std::max(max_size, ranks.size());
    std::vector<int> others;
    int largest = 0;
    for (const auto& [value, ranks] : ranks_by_value) {
        if (ranks.size() == max_size) ++largest;
        if (ranks.size() < max_size) others.insert(others.end(), ranks.begin(), ranks.end());
    }
    if (largest != 1) return {};
    std::ranges::sort(others);
    return others;
}

}  // namespace ddp::detail

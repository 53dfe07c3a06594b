#include "worker_lib/src/group/shrink/sides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <string_view>

namespace ddp::detail {

namespace {

constexpr std::string_view kExcludes = "excludes";
constexpr std::string_view kExcluded = "excluded";

bool holds(const std::vector<int>& ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

bool has_active_request(const ShrinkRequests& requests, int rank) {
    const auto found = requests.find(rank);
    return found != requests.end() && found->second.is_active();
}

}  // namespace

std::string ShrinkRequest::text() const {
    if (state == State::kWithdrawn) return fmt::format("{} withdrawn", serial);
    return fmt::format("{} {} {}", serial, is_active() ? kExcludes : kExcluded, fmt::join(excluded, " "));
}

ShrinkRequest ShrinkRequest::parse(const std::string& text) {
    std::istringstream words(text);
    ShrinkRequest request;
    std::string word;
    words >> request.serial >> word;
    request.state = word == kExcludes ? State::kActive : word == kExcluded ? State::kDisagreed : State::kWithdrawn;
    for (int rank = 0; words >> rank;) request.excluded.push_back(rank);
    return request;
}

std::vector<int> side_without(const std::vector<int>& excluded, int size) {
    std::vector<int> side(static_cast<std::size_t>(size));
    std::iota(side.begin(), side.end(), 0);
    std::erase_if(side, [&](int rank) { return holds(excluded, rank); });
    return side;
}

bool are_disjoint(const std::vector<int>& a, const std::vector<int>& b) {
    return std::ranges::none_of(a, [&](int rank) { return holds(b, rank); });
}

bool beats(const std::vector<int>& a, const std::vector<int>& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
}

std::optional<RivalSide> find_rival(const std::vector<int>& excluded, int size, const ShrinkJournal& journal,
                                    const ShrinkRequests& requests, const std::function<Presence(int)>& presence) {
    const std::vector<int> ours = side_without(excluded, size);
    std::optional<RivalSide> doubtful;
    const auto counts = [&](const RivalSide& rival) {
        const Presence found = presence(rival.rank);
        if (found != Presence::kDoubtful) return found == Presence::kThere;
        if (!doubtful) (doubtful = rival)->doubtful = true;
        return false;
    };
    for (const auto& formed : journal.formed()) {
        const std::vector<int> theirs = side_without(formed.excluded, size);
        if (!are_disjoint(ours, theirs)) continue;
        for (const int rank : theirs) {
            const RivalSide rival{.rank = rank, .side = theirs, .formed = true};
            if (journal.group_of(rank) == &formed && counts(rival)) return rival;
        }
    }
    for (const int rank : excluded) {
        if (!has_active_request(requests, rank)) continue;
        const RivalSide rival{.rank = rank, .side = side_without(requests.at(rank).excluded, size)};
        const bool larger = are_disjoint(ours, rival.side) && beats(rival.side, ours);
        if (larger && counts(rival)) return rival;
    }
    return doubtful;
}

std::vector<int> gone_on_without(int rank, const std::vector<int>& others, const ShrinkJournal& journal,
                                 const ShrinkRequests& requests) {
    std::vector<int> gone_on;
    for (const int other : others) {
        const auto* const group = journal.last_group_of(other);
        if (group == nullptr || group->holds(rank) || group->failed.contains(other)) continue;
        if (!has_active_request(requests, other)) gone_on.push_back(other);
    }
    return gone_on;
}

}  // namespace ddp::detail

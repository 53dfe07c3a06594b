#include "worker_lib/src/group/shrink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp::detail {

std::vector<int> checked_exclusion(const GroupSpec& spec, std::span<const int> exclude) {
    const auto refuse = [&](const std::string& why) { throw refusal(spec, "shrink: " + why); };
    const std::set<int> excluded(exclude.begin(), exclude.end());
    const int size = static_cast<int>(spec.members.size());
    for (const int rank : excluded) {
        if (rank < 0 || rank >= size) refuse(fmt::format("there is no rank {} in a group of {}", rank, size));
    }
    if (static_cast<int>(excluded.size()) == size) refuse("all ranks are excluded, so no rank is left");
    if (excluded.contains(spec.rank)) {
        refuse(fmt::format("rank {} excludes itself. Only ranks that stay call it", spec.rank));
    }
    return {excluded.begin(), excluded.end()};
}

std::unique_ptr<ProcessGroup> shrink_group(const GroupSpec& group, BackendImpl& backend, ShrinkHistory& history,
                                           std::vector<int> excluded) {
    GroupSpec spec = group;
    spec.members.clear();
    spec.locations.clear();
    std::vector<int> others;
    for (int rank = 0; rank < static_cast<int>(group.members.size()); ++rank) {
        if (std::ranges::binary_search(excluded, rank)) continue;
        if (rank == group.rank) spec.rank = static_cast<int>(spec.members.size());
        if (rank != group.rank) others.push_back(rank);
        spec.members.push_back(group.members[static_cast<std::size_t>(rank)]);
        spec.locations.push_back(group.locations[static_cast<std::size_t>(rank)]);
    }
    SurvivorAgreement agreement(group, backend, history, excluded, std::move(others));
    const auto round = agreement.reach();
    const std::string part = fmt::format("shrink{}{}", round, excluded.empty() ? "" : ":" + label_of(excluded));
    spec.name =
        fmt::format("({}) of {}", part, group.name);  // differs from a split's, which begins with the program's name
    spec.path = fmt::format("{}/{}", path_of(group), part);
    // All ranks are present: exchanging records and connecting each get half of the time.
    GroupSpec forming = spec;
    forming.init_timeout /= 2;
    try {
        agreement.check_alive();  // a survivor may have been lost since the decision
        auto connected = backend.make_another(forming);
        return make_group(std::move(spec), std::move(connected));
    } catch (...) {
        agreement.take_back(round);
        throw;
    }
}

}  // namespace ddp::detail

// ProcessGroup::shrink(): a new group of those who are left, once they agree on who that is.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "worker_lib/src/group.hpp"
#include "worker_lib/src/shrink_agreement.hpp"

namespace ddp::detail {

namespace {

std::vector<int> checked(std::span<const int> exclude, const GroupSpec& spec) {
    const auto refuse = [&](const std::string& why) {
        throw refusal(spec, "shrink: " + why);
    };
    const std::set<int> excluded(exclude.begin(), exclude.end());
    const int size = static_cast<int>(spec.members.size());
    for (const int rank : excluded) {
        if (rank < 0 || rank >= size) refuse(fmt::format("there is no rank {} in a group of {}", rank, size));
    }
    if (static_cast<int>(excluded.size()) == size) refuse("all ranks are excluded, so nobody is left");
    if (excluded.contains(spec.rank)) {
        refuse(fmt::format("rank {} excludes itself. Only those who stay call it", spec.rank));
    }
    return {excluded.begin(), excluded.end()};
}

}  // namespace

std::unique_ptr<ProcessGroup> GroupImpl::shrink(std::span<const int> exclude) {
    check_process();
    const std::vector<int> excluded = checked(exclude, spec_);
    GroupSpec spec = spec_;
    spec.members.clear();
    spec.places.clear();
    std::vector<int> others;
    for (int rank = 0; rank < static_cast<int>(spec_.members.size()); ++rank) {
        if (std::ranges::binary_search(excluded, rank)) continue;
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        if (rank != spec_.rank) others.push_back(rank);
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
        spec.places.push_back(spec_.places[static_cast<std::size_t>(rank)]);
    }
    const std::lock_guard lock(shrink_mutex_);
    ShrinkAgreement agreement(spec_, *backend_, shrinks_, excluded, std::move(others));
    const auto round = agreement.reach();
    const std::string part = fmt::format("shrink{}{}", round, excluded.empty() ? "" : ":" + label_of(excluded));
    spec.name = fmt::format("({}) of {}", part, spec_.name);  // no split's, for those have words of the program first
    spec.path = fmt::format("{}/{}", path_of(spec_), part);
    // All are there: their records and their connections each get half of the time.
    GroupSpec forming = spec;
    forming.init_timeout /= 2;
    try {
        agreement.check_alive();  // it may have been decided a moment too late
        return make_group(std::move(spec), *backend_, forming);
    } catch (...) {
        agreement.take_back(round);
        throw;
    }
}

}  // namespace ddp::detail

// ProcessGroup::shrink(): makes a new group of the surviving ranks, once they agree which ranks those are.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/group/shrink/agreement.hpp"

namespace ddp::detail {

namespace {

std::vector<int> checked(std::span<const int> exclude, const GroupSpec& spec) {
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

}  // namespace

std::unique_ptr<ProcessGroup> GroupImpl::shrink(std::span<const int> exclude) {
    check_process();
    const std::vector<int> excluded = checked(exclude, spec_);
    GroupSpec spec = spec_;
    spec.members.clear();
    spec.locations.clear();
    std::vector<int> others;
    for (int rank = 0; rank < static_cast<int>(spec_.members.size()); ++rank) {
        if (std::ranges::binary_search(excluded, rank)) continue;
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        if (rank != spec_.rank) others.push_back(rank);
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
        spec.locations.push_back(spec_.locations[static_cast<std::size_t>(rank)]);
    }
    const ddprun::Lock lock(shrink_mutex_);
    ShrinkAgreement agreement(spec_, *backend_, shrinks_, excluded, std::move(others));
    const auto round = agreement.reach();
    const std::string part = fmt::format("shrink{}{}", round, excluded.empty() ? "" : ":" + label_of(excluded));
    spec.name =
        fmt::format("({}) of {}", part, spec_.name);  // differs from a split's, which begins with the program's name
    spec.path = fmt::format("{}/{}", path_of(spec_), part);
    // All ranks are present: exchanging records and connecting each get half of the time.
    GroupSpec forming = spec;
    forming.init_timeout /= 2;
    try {
        agreement.check_alive();  // a survivor may have been lost since the decision
        auto backend = backend_->make_another(forming);
        return make_group(std::move(spec), std::move(backend));
    } catch (...) {
        agreement.take_back(round);
        throw;
    }
}

}  // namespace ddp::detail

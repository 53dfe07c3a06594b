#include "ddp/join.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/reducer/impl.hpp"

namespace ddp {
namespace {

// The announcements that ranks gather.
constexpr std::uint8_t kNoBatch = 0;
constexpr std::uint8_t kBatch = 1;
constexpr std::uint8_t kBatchWithSync = 2;

std::string names_of(const ProcessGroup& group, const std::vector<int>& ranks) {
    std::vector<std::string> names;
    for (const int rank : ranks) names.push_back(group.name_of(rank));
    return ddprun::list_of(std::move(names));
}

/// Collective. Returns all ranks' announcements, and adds their values, in rank order, to `sums`.
std::vector<std::uint8_t> exchange(ProcessGroup& group, std::uint8_t plan, std::span<const double> values,
                                   std::span<double> sums) {
    std::vector<std::byte> own(1 + values.size_bytes());
    own[0] = std::byte{plan};
    std::ranges::copy(std::as_bytes(values), own.begin() + 1);
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<std::byte> all(ranks * own.size());
    group.all_gather(own, all, {.label = "Join::more()"}).wait();
    std::vector<std::uint8_t> plans(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        const std::byte* at = &all[r * own.size()];
        plans[r] = std::to_integer<std::uint8_t>(*at++);
        for (double& sum : sums) {
            double value = 0;
            std::memcpy(&value, at, sizeof value);
            at += sizeof value;
            sum += value;
        }
    }
    return plans;
}

/// Throws the error of JoinOptions::Early::Throw.
[[noreturn]] void end_early(const ProcessGroup& group, const std::vector<std::uint8_t>& plans) {
    std::vector<int> ended;
    for (std::size_t r = 0; r < plans.size(); ++r) {
        if (plans[r] == kNoBatch) ended.push_back(static_cast<int>(r));
    }
    throw Error(ErrorCode::InvalidArgument,
                "Join: the ranks have different numbers of batches: " + names_of(group, ended) + " " +
                    std::string(ddprun::inflect(ended.size(), "has", "have")) +
                    " none left. Shard with DistributedSampler, or let JoinOptions::early be Shadow",
                ended);
}

/// Throws for steps of different kinds, in which each rank would wait for collectives that the others do not make.
[[noreturn]] void end_for_sync(const ProcessGroup& group, const std::vector<std::uint8_t>& plans, int first) {
    std::vector<int> others;
    std::map<std::uint64_t, std::vector<int>> ranks_by_plan;
    const std::uint8_t plan = plans[static_cast<std::size_t>(first)];
    for (std::size_t r = 0; r < plans.size(); ++r) {
        if (plans[r] == kNoBatch) continue;
        ranks_by_plan[plans[r]].push_back(static_cast<int>(r));
        if (plans[r] != plan) others.push_back(static_cast<int>(r));
    }
    const bool sync = plan == kBatchWithSync;
    throw Error(ErrorCode::Mismatch,
                "Join: the ranks are about to make different steps: " + group.name_of(first) + " one with" +
                    (sync ? "" : "out") + " sync, but " + names_of(group, others) + " one with" + (sync ? "out" : "") +
                    " sync. Pass more() the same JoinStep::sync on every rank",
                detail::outvoted(ranks_by_plan));
}

}  // namespace

Join::Join(ProcessGroup& group, GradientReducer& reducer, JoinOptions options)
    : group_(group.split(0, group.rank(), "join")), reducer_(*reducer.impl_), options_(options) {
    const int ranks = reducer_.ranks();
    if (group_->size() != ranks) {
        throw Error(ErrorCode::InvalidArgument, "Join: the group has " + std::to_string(group_->size()) +
                                                    " ranks, the reducer's has " + std::to_string(ranks) +
                                                    ". Pass the group that the reducer was made with");
    }
    reducer_.next().join_begins();
}

Join::~Join() {
    reducer_.next().join_ends();
    reducer_.divide_by(group_->size());
}

bool Join::more(bool have_batch, JoinStep step) {
    if (reducer_.next().is_owed()) {
        const std::string why =
            "Join: the last more() announced a backward that was not made. Make one, with mark_unused for each "
            "gradient if the batch was unusable: the other ranks wait for it";
        group_->abort(why);  // the others are in more() already, or in that backward
        reducer_.end_for_misuse(why);
    }
    const std::uint8_t plan_here = !have_batch ? kNoBatch : step.sync ? kBatchWithSync : kBatch;
    std::vector<double> own(step.sums.begin(), step.sums.end());
    std::ranges::fill(step.sums, 0.0);
    for (;;) {
        const auto plans = exchange(*group_, plan_here, own, step.sums);
        std::ranges::fill(own, 0.0);  // they count once
        const auto first = std::ranges::find_if(plans, [](std::uint8_t plan) { return plan != kNoBatch; });
        if (first == plans.end()) {
            reducer_.next().end_epoch();
            return false;
        }
        last_active_ = static_cast<int>(first - plans.begin());
        const bool alike = std::ranges::all_of(plans, [&](std::uint8_t p) { return p == kNoBatch || p == *first; });
        if (!alike) end_for_sync(*group_, plans, last_active_);
        const auto active = std::ranges::count_if(plans, [](std::uint8_t plan) { return plan != kNoBatch; });
        if (active < group_->size() && options_.early == JoinOptions::Early::Throw) end_early(*group_, plans);
        reducer_.divide_by(options_.divide_by_initial ? group_->size() : static_cast<int>(active));
        if (!have_batch) {
            reducer_.shadow(*first == kBatchWithSync);
            continue;
        }
        reducer_.next().announce(step.sync);
        return true;
    }
}

}  // namespace ddp

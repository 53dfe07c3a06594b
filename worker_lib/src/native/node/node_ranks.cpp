#include "worker_lib/src/native/node/node_ranks.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/text/list.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/util/process_watch.hpp"

namespace ddp::detail {

namespace {

std::vector<Control*> controls_of(const std::vector<LocalRank>& ranks) {
    std::vector<Control*> controls;
    for (const LocalRank& rank : ranks) controls.push_back(&rank.segment->control());
    return controls;
}

WakerFence waker_fence(const std::vector<Control*>& ranks) {
    const bool all = std::ranges::all_of(ranks, [](const Control* rank) { return rank->allows_remote_fences; });
    return all ? WakerFence::kSleeper : WakerFence::kItself;
}

bool have_to_share_cores(const std::vector<Control*>& ranks) {
    std::vector<CoreSet> cores;
    for (const Control* rank : ranks) cores.push_back(rank->cores);
    return share_cores(std::move(cores));
}

}  // namespace

NodeRanks::NodeRanks(std::string group, int group_size, std::vector<LocalRank> ranks, int own_index)
    : group_(std::move(group)),
      group_size_(group_size),
      ranks_(std::move(ranks)),
      controls_(controls_of(ranks_)),
      own_index_(own_index),
      own_(control(own_index)),
      waiter_(own_, have_to_share_cores(controls_), waker_fence(controls_)) {}

std::string NodeRanks::self() const { return name_rank(own_local().rank, own_local().global_rank, ""); }

std::string NodeRanks::names_of(const std::vector<int>& ranks) const {
    std::vector<std::string> names;
    for (const LocalRank& one : ranks_) {
        if (std::ranges::find(ranks, one.rank) != ranks.end()) names.push_back(one.name);
    }
    return ddprun::list_of(std::move(names));
}

int NodeRanks::stopped_pid(int index) const { return detail::stopped_pid(local(index).process); }

std::uint32_t NodeRanks::this_core() { return static_cast<std::uint32_t>(::sched_getcpu() + 1); }

}  // namespace ddp::detail

#include "worker_lib/src/reducer/node_groups.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/group/machines.hpp"
#include "worker_lib/src/reducer/values.hpp"

namespace ddp::detail {

NodeGroups::NodeGroups(ProcessGroup& group) {
    const std::vector<std::string> machines = machines_of(group, "PowerSgd");
    const std::string& own = machines[static_cast<std::size_t>(group.rank())];
    const int first = static_cast<int>(std::ranges::find(machines, own) - machines.begin());
    nodes_ = static_cast<int>(std::set<std::string>(machines.begin(), machines.end()).size());
    local_ = group.split(first, group.rank(), "PowerSgd in a node");
    between_ = group.split(first == group.rank() ? 0 : -1, group.rank(), "PowerSgd between nodes");
    weight_ = static_cast<double>(local_->size() * nodes_) / group.size();
}

void NodeGroups::reduce(const Buffer& values, std::uint64_t step, const std::string& label) {
    for (ProcessGroup* const group : {local_.get(), between_.get()}) {
        if (group != nullptr) GroupImpl::of(*group).set_step(step);
    }
    if (local_->size() > 1) local_->reduce(values, values, ReduceOp::Avg, 0, {.label = label}).wait();
    if (between_) scale(values, weight_);
}

void NodeGroups::broadcast(const Buffer& values, const std::string& label) {
    if (local_->size() > 1) local_->broadcast(values, 0, {.label = label}).wait();
}

void NodeGroups::abort(std::string_view reason) {
    for (ProcessGroup* const group : {local_.get(), between_.get()}) {
        if (group != nullptr) group->abort(reason);
    }
}

}  // namespace ddp::detail

#pragma once
// NodeGroups: sums gradients inside each node, so that only the nodes' first ranks exchange them between nodes.
// PowerSgd owns it, on the reducer's thread.

#include <memory>
#include <string>
#include <string_view>

#include "ddp/buffer.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail {

class NodeGroups {
public:
    /// Splits `group` by machines. Collective over it; throws as ProcessGroup::split().
    explicit NodeGroups(ProcessGroup& group);

    [[nodiscard]] int nodes() const { return nodes_; }
    /// Returns the group of all nodes' first ranks; null on other ranks.
    [[nodiscard]] ProcessGroup* between() const { return between_.get(); }

    /// Sets the first rank's `values` to the mean of the node's ranks, times the node's weight: a node of more ranks
    /// weighs more, so that the mean over the nodes is that of all ranks. The ranks compare `step`, also in the
    /// operations that follow.
    void reduce(const Buffer& values, std::uint64_t step, const std::string& label);
    /// Copies the first rank's values to the other ranks of the node.
    void broadcast(const Buffer& values, const std::string& label);
    /// Ends both groups, because the exchange has failed on this rank and the others would wait for it.
    void abort(std::string_view reason);

private:
    std::unique_ptr<ProcessGroup> local_;
    std::unique_ptr<ProcessGroup> between_;
    int nodes_ = 0;
    double weight_ = 1;  ///< of the mean of this node's ranks
};

}  // namespace ddp::detail

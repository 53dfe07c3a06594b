#pragma once
// SharedWork: work of an operation that any rank of the node can do as well, in parts that the ranks claim one by one
// (dynamic self-scheduling). It replaces a barrier if ranks share cores: a rank that waits for one certain
// peer waits until the kernel lets that one run. Used by the thread that runs the group's operations.

#include <cstddef>
#include <functional>

#include "worker_lib/src/native/node/meetings.hpp"

namespace ddp::detail {

class SharedWork {
public:
    static constexpr std::size_t kMaxParts = 50'000;
    /// Does part number `part` of the share of the rank at `owner`.
    using DoPart = std::function<void(int owner, std::size_t part)>;

    SharedWork(const NodeRanks& ranks, const NodeFailure& failure, const PeerWait& wait, const Meetings& meetings)
        : ranks_(ranks), failure_(failure), wait_(wait), meetings_(meetings) {}

    /// Takes part in the work of the announced operation. The share of each rank has `parts` parts, at most
    /// kMaxParts; each part is done once, by the rank that claims it first. Returns when all parts are done, and does
    /// not wait for ranks that do none. Throws as PeerWait::until_all().
    void run(const Operation& operation, std::size_t parts, const DoPart& do_part);

private:
    void finish(const Operation& operation, std::size_t parts);
    [[nodiscard]] bool all_finished(std::size_t parts) const;

    const NodeRanks& ranks_;
    const NodeFailure& failure_;
    const PeerWait& wait_;
    const Meetings& meetings_;
};

}  // namespace ddp::detail

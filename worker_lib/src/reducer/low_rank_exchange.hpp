#pragma once
// LowRankExchange: the implementation of PowerSgd. For each bucket it makes two all_reduces on the reducer's thread:
// one of the left factors and of all gradients that are not compressed, one of the right factors.
//
// With M = gradient + residual of a rank, P = sum of the ranks' M Q, made orthonormal, and Q' = Mᵀ P, the average is
// P mean(Q')ᵀ. PyTorch's hook keeps M - average. Here a rank keeps M - P Q'ᵀ, its own projection: the sum over the
// ranks is the same, and only that enters the next average, but it has nothing of how the rank differs from the others.
// With PowerSgdOptions::between_nodes the nodes take the places of the ranks: the first rank of each has M of its node.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/power_sgd.hpp"
#include "worker_lib/src/reducer/low_rank.hpp"
#include "worker_lib/src/reducer/node_groups.hpp"

namespace ddp::detail {

class LowRankExchange {
public:
    LowRankExchange(std::vector<ParamSpec> params, PowerSgdOptions options);

    void prepare(ProcessGroup& group, const BucketPlan& plan);
    void complete(const GradBucket& bucket);
    /// Ends the groups of the nodes. Any thread.
    void abort(std::string_view reason);
    void release();
    void settle();
    [[nodiscard]] std::vector<NamedBuffer> state(std::string_view prefix);
    [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
    /// Replaces the first right factor of a parameter, for tests.
    void set_right(std::size_t param, std::span<const float> right);

private:
    struct Param {
        MatrixShape shape;
        std::vector<float> residual;  ///< empty: not compressed. During a step: gradient + residual
        std::vector<float> right;     ///< Q, for warm start
    };
    using Gradient = GradBucket::Gradient;
    /// A gradient of a bucket, and its part of the memory that is exchanged.
    struct Slice {
        std::size_t param = 0;
        std::span<float> values;
        std::span<float> left;       ///< its left factor, or the gradient itself
        std::span<float> right;      ///< empty: it is not compressed
        std::span<float> own_right;  ///< this rank's, for the residual
    };

    [[nodiscard]] bool is_compressed(const Gradient& gradient) const { return params_[gradient.param].shape.rank > 0; }
    [[nodiscard]] bool has_matrices(const GradBucket& bucket) const;
    [[nodiscard]] bool sends_factors() const { return steps_ >= options_.start_step; }
    void agree(ProcessGroup& group) const;
    void share_state(ProcessGroup& group);
    [[nodiscard]] std::array<std::size_t, 2> memory_needed(const BucketPlan& plan) const;
    void check_counts(const GradBucket& bucket) const;
    /// Sets the right factor to random numbers, others for each `draw`.
    void start_factor(std::size_t param, std::uint64_t draw);
    void keep_factor(std::size_t param, std::span<const float> right);
    void settle_residual(std::size_t param);
    void average_whole(const GradBucket& bucket, ProcessGroup& group);
    void average_between_nodes(const GradBucket& bucket);
    void average_factors(const GradBucket& bucket);
    [[nodiscard]] std::vector<Slice> slices_of(const GradBucket& bucket, std::span<float>& left,
                                               std::span<float>& right);
    void project(const Slice& slice);
    void keep_residual(const Slice& slice);
    void drop(std::size_t param);
    [[nodiscard]] Work all_reduce(std::span<float> values, ReduceOp op, const std::string& label);

    const std::vector<ParamSpec> specs_;
    const PowerSgdOptions options_;
    std::vector<Param> params_;
    ProcessGroup* group_ = nullptr;
    std::optional<NodeGroups> nodes_;     ///< with PowerSgdOptions::between_nodes
    ProcessGroup* exchanging_ = nullptr;  ///< the ranks that have factors; null: another rank of the node exchanges
    std::array<std::span<float>, 2>
        memory_;                    ///< for the left and the right factors of a bucket, in exchanging_'s arena
    std::vector<float> own_right_;  ///< this rank's right factors of a bucket
    std::uint64_t steps_ = 0;       ///< ended
    std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace ddp::detail

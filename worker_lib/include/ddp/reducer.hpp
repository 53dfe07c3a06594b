#pragma once
// GradientReducer: averages gradients over the ranks of a group while backward is still running. It owns the buckets;
// gradients are views into them, so nothing is copied. One object, one owner thread, except mark_ready (any thread).
//
//     reducer.begin_backward();
//     …compute gradient i into reducer.grad(i)…, then reducer.mark_ready(i);      // in any order, best: last layer first
//     reducer.finish_backward();                                                   // all gradients are averages now

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace ddp {

struct ParamSpec {
    std::string name;        ///< shown in errors
    std::size_t count = 0;   ///< elements
    DType dtype = DType::f32;
};

struct ReducerOptions {
    std::size_t bucket_cap_bytes = 25u << 20;
    std::size_t first_bucket_cap_bytes = 1u << 20;  ///< small, so that communication starts early
    std::size_t align_bytes = 128;                  ///< of every gradient inside its bucket
};

/// Which gradient lies where. The same on all ranks, checked by hash.
struct BucketPlan {
    struct Slot { std::size_t param = 0; std::size_t offset_bytes = 0; };
    struct Bucket { DType dtype = DType::f32; std::size_t bytes = 0; std::vector<Slot> slots; };
    std::vector<Bucket> buckets;  ///< in launch order: the bucket over the last parameters first
    [[nodiscard]] std::uint64_t hash() const;
};

/// DDP's assignment: parameters in registration order fill buckets per dtype until a limit is crossed (the crossing tensor
/// is inside), limits [first_bucket_cap, bucket_cap, bucket_cap, …]; then the list is reversed. Pure.
/// Source: c10d compute_bucket_assignment_by_size; unlike it, every gradient is padded to align_bytes.
[[nodiscard]] BucketPlan plan_buckets(std::span<const ParamSpec> params, const ReducerOptions& options);

struct ReducerStats {
    std::uint64_t steps = 0;
    std::uint64_t bytes_reduced = 0;
    std::chrono::nanoseconds backward{};      ///< begin_backward to finish_backward's return, summed
    std::chrono::nanoseconds exposed{};       ///< of that: waited in finish_backward for communication
};

class GradientReducer {
public:
    /// Collective. Runs on a group of its own, split from `group`, so that the user's collectives cannot interleave.
    /// Throws Error{Mismatch} naming the ranks and the first parameter that differs.
    GradientReducer(ProcessGroup& group, std::vector<ParamSpec> params, ReducerOptions options = {});
    ~GradientReducer();
    GradientReducer(GradientReducer&&) noexcept;

    /// Where to write gradient i: params[i].count elements, a view into its bucket.
    [[nodiscard]] Buffer grad(std::size_t i);
    /// sync = false accumulates locally (gradient accumulation); the same on all ranks.
    void begin_backward(bool sync = true);
    /// Gradient i is complete. Launches its bucket when it is the next one and full. Twice in one backward: an error.
    void mark_ready(std::size_t i);
    /// Gradient i takes no part in this backward: its view is set to zero.
    void mark_unused(std::size_t i);
    /// Waits for all buckets. Throws Error{InvalidArgument} naming every parameter that was not marked.
    void finish_backward();

    /// Broadcasts root's values: call once before training, with the parameters.
    void sync_parameters(std::span<const Buffer> params, int root = 0);

    [[nodiscard]] const BucketPlan& plan() const;
    [[nodiscard]] ReducerStats stats() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp

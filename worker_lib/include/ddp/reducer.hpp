#pragma once
// GradientReducer: averages gradients over the ranks of a group while backward is still running. It owns the buckets;
// gradients are views into them, so nothing is copied. On native groups (host memory) so far. One object, one owner
// thread, except mark_ready (any thread).
//
//     reducer.begin_backward();
//     …compute gradient i into reducer.grad(i)…, then reducer.mark_ready(i);   // in any order; best: last layer first
//     reducer.finish_backward();                                               // all gradients are averages now

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
    std::string name;       ///< shown in errors
    std::size_t count = 0;  ///< elements
    DType dtype = DType::f32;
};

struct ReducerOptions {
    std::size_t bucket_cap_bytes = 25u << 20;
    std::size_t first_bucket_cap_bytes = 1u << 20;  ///< small, so that communication starts early
    std::size_t align_bytes = 128;                  ///< of every gradient inside its bucket; a multiple of 8
};

/// Which gradient lies where. The same on all ranks, checked by hash.
struct BucketPlan {
    struct Slot {
        std::size_t param = 0;
        std::size_t offset_bytes = 0;
    };
    struct Bucket {
        DType dtype = DType::f32;
        std::size_t bytes = 0;
        std::vector<Slot> slots;
    };
    std::vector<Bucket> buckets;  ///< in launch order: the bucket over the last parameters first
    [[nodiscard]] std::uint64_t hash() const;
};

/// DDP's assignment for gradients that become ready last layer first: parameters in reverse registration order fill
/// buckets, one at a time per dtype, until a limit is crossed (the crossing tensor is inside); the limits are
/// [first_bucket_cap, bucket_cap, bucket_cap, …]. Pure. Throws Error{InvalidArgument} for a dtype without gradients or
/// a bad alignment. Source: c10d compute_bucket_assignment_by_size, as DDP calls it for the rebuilt plan; unlike it,
/// every gradient is padded to align_bytes. (DDP's first plan walks forward and reverses the list: then the small
/// bucket would start last.)
[[nodiscard]] BucketPlan plan_buckets(std::span<const ParamSpec> params, const ReducerOptions& options);

struct ReducerStats {
    std::uint64_t steps = 0;
    std::uint64_t bytes_reduced = 0;
    std::chrono::nanoseconds backward{};  ///< begin_backward to finish_backward's return, summed; without sync too
    std::chrono::nanoseconds exposed{};   ///< of that: waited in finish_backward for communication
    std::size_t buckets_done = 0;         ///< of the backward under way, or the last one: already reduced
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
    /// sync = false: nothing is sent in this backward (gradient accumulation); the same choice on all ranks. The views
    /// keep their contents from one backward to the next, so accumulating is the caller's: write into grad(i) in the
    /// first backward after a synchronised one, add to it in the following ones, and scale by the number of them.
    void begin_backward(bool sync = true);
    /// Gradient i is complete. Launches its bucket when it is the next one and full. Twice in one backward: an error.
    void mark_ready(std::size_t i);
    /// Gradient i takes no part in this backward: its view is set to zero, or keeps what earlier backwards without sync
    /// added.
    void mark_unused(std::size_t i);
    /// Waits for all buckets. Throws Error{InvalidArgument} naming every parameter that was not marked. After an error
    /// the reducer is unusable, here and (with Error{Aborted} or {PeerLost}) on the peers, which would wait for ever
    /// otherwise.
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

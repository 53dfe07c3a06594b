#pragma once
// BucketPlan: which gradient lies in which bucket, and how it is decided. Pure values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp/types.hpp"

namespace ddp {

struct ParamSpec {
    std::string name;       ///< shown in errors
    std::size_t count = 0;  ///< elements
    DType dtype = DType::f32;
    int uses = 1;  ///< how often one backward marks it ready: more than once if layers share it. The last one counts.
};

/// Which gradient lies where. The same on all ranks, checked by hash.
struct BucketPlan {
    struct Slot {
        std::size_t param = 0;
        std::size_t offset_bytes = 0;
        bool operator==(const Slot&) const = default;
    };
    struct Bucket {
        DType dtype = DType::f32;
        std::size_t bytes = 0;
        std::vector<Slot> slots;
        bool operator==(const Bucket&) const = default;
    };
    std::vector<Bucket> buckets;  ///< in launch order: the one that is complete first comes first

    [[nodiscard]] std::uint64_t hash() const;
    bool operator==(const BucketPlan&) const = default;

    /// The plan as numbers, for a checkpoint, and back. Throws Error{InvalidArgument} for what words() did not make.
    [[nodiscard]] std::vector<std::uint64_t> words() const;
    [[nodiscard]] static BucketPlan from_words(std::span<const std::uint64_t> words);
};

struct BucketLimits {
    std::size_t bucket_cap_bytes = 25u << 20;
    std::size_t first_bucket_cap_bytes = 1u << 20;  ///< small, so that communication starts early
    std::size_t align_bytes = 128;  ///< of every gradient inside its bucket; a multiple of 8, up to 4096
};

/// DDP's assignment: parameters, in the order in which their gradients become ready, fill buckets, one at a time per
/// dtype, until a limit is crossed (the crossing tensor is inside); the limits are [first_bucket_cap, bucket_cap,
/// bucket_cap, …]. `ready_order`: every index once; empty: the last registered first, as backward goes. Pure. Throws
/// Error{InvalidArgument} for a dtype without gradients, a bad alignment or a bad order. Source: c10d
/// compute_bucket_assignment_by_size, as DDP calls it for the rebuilt plan; unlike it, every gradient is padded to
/// align_bytes. (DDP's first plan walks forward and reverses the list: then the small bucket would start last.)
[[nodiscard]] BucketPlan plan_buckets(std::span<const ParamSpec> params, const BucketLimits& limits,
                                      std::span<const std::size_t> ready_order = {});

/// Throws Error{InvalidArgument} saying why `plan` cannot hold the gradients of `params`: a parameter that is missing
/// or there twice, of another type, outside its bucket or over another one; gaps that no alignment explains; sizes that
/// no memory can hold.
void check_plan(const BucketPlan& plan, std::span<const ParamSpec> params);

}  // namespace ddp

#pragma once
// BucketPlan: the assignment of gradients to buckets. BucketLimits: the sizes of buckets, that of the first one
// included. plan_buckets makes a plan, check_plan checks one; both refuse parameters of types that have no gradients
// (is_float). Pure values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp/export.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// A parameter whose gradient is reduced.
struct ParamSpec {
    std::string name;          ///< shown in errors
    std::size_t count = 0;     ///< elements
    DType dtype = DType::F32;  ///< of the parameter and its gradient
    int uses = 1;              ///< mark_ready calls per backward, the last one completes it; several if layers share it
    /// Its dimensions, of `count` elements together; empty: one dimension. For hooks that compress matrices.
    std::vector<std::size_t> shape = {};
};

/// Assigns each gradient to a slot of a bucket. It is the same on all ranks.
struct BucketPlan {
    /// The place of one gradient.
    struct Slot {
        std::size_t param = 0;         ///< index of the parameter
        std::size_t offset_bytes = 0;  ///< from the beginning of the bucket
        /// Compares all members.
        bool operator==(const Slot&) const = default;
    };
    /// Gradients of one type that are exchanged together.
    struct Bucket {
        DType dtype = DType::F32;  ///< of all its gradients
        std::size_t bytes = 0;     ///< with the padding between the gradients
        std::vector<Slot> slots;   ///< in the order of their offsets
        /// Compares all members.
        bool operator==(const Bucket&) const = default;
    };
    std::vector<Bucket> buckets;  ///< in launch order: the bucket that is expected to be complete first comes first

    /// Returns a hash of all buckets and slots: equal plans have equal hashes, on every rank.
    [[nodiscard]] std::uint64_t hash() const;
    /// Compares all members.
    bool operator==(const BucketPlan&) const = default;

    /// Returns the plan as 64-bit words that a checkpoint can store.
    [[nodiscard]] std::vector<std::uint64_t> words() const;
    /// Returns the plan from its words(). Throws Error{InvalidArgument} for other numbers.
    [[nodiscard]] static BucketPlan from_words(std::span<const std::uint64_t> words);
};

/// Sizes of buckets. The caps' defaults are those of PyTorch's DDP.
struct BucketLimits {
    std::size_t bucket_cap_bytes = 25u << 20;       ///< of every bucket but the first
    std::size_t first_bucket_cap_bytes = 1u << 20;  ///< small, so that communication starts early
    std::size_t align_bytes = 128;                  ///< of every gradient in its bucket; a multiple of 8, at most 4096
};

/// Assigns gradients to buckets as PyTorch's DDP does. In the order in which they become ready, gradients fill one
/// bucket per dtype until its limit is crossed; the crossing one is still inside. The limits are [first_bucket_cap,
/// bucket_cap, bucket_cap, …]. `ready_order` holds every index once. If it is empty, the last registered gradient comes
/// first, as in backward. Pure. Throws Error{InvalidArgument} for a dtype without gradients, a bad alignment or order.
/// Source: c10d compute_bucket_assignment_by_size, as DDP calls it for the rebuilt plan. Unlike there, each gradient is
/// padded to align_bytes. (DDP's first plan walks forward and reverses the list, so its small bucket starts last.)
[[nodiscard]] BucketPlan plan_buckets(std::span<const ParamSpec> params, const BucketLimits& limits,
                                      std::span<const std::size_t> ready_order = {});

/// Throws Error{InvalidArgument} with the reason if `plan` cannot hold the gradients of `params`: a parameter is
/// missing, there twice, of another type, outside its bucket or overlaps another; a gap is larger than any alignment;
/// or the sizes exceed any memory.
void check_plan(const BucketPlan& plan, std::span<const ParamSpec> params);

}  // namespace ddp

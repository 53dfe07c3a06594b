#pragma once
// GradientStorage: the memory of the buckets, laid out by a plan, and the gradients that live outside of it. Knows
// nothing of ranks or time.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail {

class GradientStorage {
public:
    /// One block of `arena`, with room for any plan of `params` with gradients aligned to at most `align_bytes`.
    GradientStorage(Arena& arena, std::span<const ParamSpec> params, BucketPlan plan, std::size_t align_bytes);

    /// Lays the same memory out anew and clears it: all views move.
    void lay_out(BucketPlan plan);

    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] const Buffer& view(std::size_t param) const { return params_[param].view; }
    /// Where the caller has it: the bound buffer, or the view.
    [[nodiscard]] const Buffer& gradient(std::size_t param) const {
        return params_[param].external ? *params_[param].external : params_[param].view;
    }
    [[nodiscard]] std::size_t bucket_of(std::size_t param) const { return params_[param].bucket; }
    [[nodiscard]] GradBucket bucket(std::size_t index) const;

    /// `external` has the parameter's count and type.
    void bind(std::size_t param, Buffer external) { params_[param].external = external; }
    /// From the bound buffer into the bucket, if there is one.
    void copy_in(std::size_t param) const;
    /// From a bucket into the bound buffers.
    void copy_out(std::size_t bucket) const;
    /// In the bucket, and in the bound buffer.
    void zero(std::size_t param) const;

private:
    struct Param {
        Buffer view;
        std::size_t bucket = 0;
        std::optional<Buffer> external;
    };

    BucketPlan plan_;
    std::byte* memory_ = nullptr;
    std::size_t capacity_ = 0;  ///< bytes
    std::vector<Param> params_;
    std::vector<Buffer> buckets_;
    std::vector<std::vector<GradBucket::Gradient>> gradients_;  ///< by bucket
};

}  // namespace ddp::detail

#pragma once
// GradientStorage: the block of memory that holds the buckets, laid out by a plan, and the bound gradients outside of
// it. It knows addresses only: GradientMemory reads and writes what is there.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail {

/// The action that a gradient needs before its bucket may be sent.
enum class Fill {
    kNotYet,   ///< it is not complete
    kNothing,  ///< it stays where it is
    kZero,
    kCopy,  ///< from the bound buffer, if there is one
};

class GradientStorage {
public:
    /// Takes one block of `arena`, whose memory is on `device`, with room for any plan of `params` with gradients
    /// aligned to at most `align_bytes`.
    GradientStorage(Arena& arena, Device device, std::span<const ParamSpec> params, BucketPlan plan,
                    std::size_t align_bytes);

    /// Lays the same memory out by another plan: all views move.
    void lay_out(BucketPlan plan);

    [[nodiscard]] Device device() const { return device_; }
    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] std::size_t params() const { return params_.size(); }
    [[nodiscard]] const Buffer& view(std::size_t param) const { return params_[param].view; }
    /// Returns the caller's memory of the gradient: the bound buffer, or the view.
    [[nodiscard]] const Buffer& gradient(std::size_t param) const {
        return params_[param].external ? *params_[param].external : params_[param].view;
    }
    /// Returns the bound buffer; nothing: the gradient is its view.
    [[nodiscard]] const std::optional<Buffer>& external(std::size_t param) const { return params_[param].external; }
    [[nodiscard]] std::size_t bucket_of(std::size_t param) const { return params_[param].bucket; }
    [[nodiscard]] GradBucket bucket(std::size_t index) const;
    /// Returns the size of all buckets together, without the padding between them.
    [[nodiscard]] std::size_t bucket_bytes() const;

    /// Binds a gradient to `external`, which has the parameter's count and type.
    void bind(std::size_t param, Buffer external) { params_[param].external = external; }

private:
    struct Param {
        Buffer view;
        std::size_t bucket = 0;
        std::optional<Buffer> external;
    };

    const Device device_;
    BucketPlan plan_;
    std::byte* memory_ = nullptr;
    std::size_t capacity_ = 0;  ///< bytes
    std::vector<Param> params_;
    std::vector<Buffer> buckets_;
    std::vector<std::vector<GradBucket::Gradient>> gradients_;  ///< by bucket
};

}  // namespace ddp::detail

#include "worker_lib/src/reducer/gradient_storage.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ddp::detail {
namespace {

constexpr std::size_t kBucketAlignBytes = 128;

std::size_t padded(std::size_t bytes) {
    return (bytes + kBucketAlignBytes - 1) / kBucketAlignBytes * kBucketAlignBytes;
}

std::size_t bytes_of(const BucketPlan& plan) {
    std::size_t bytes = 0;
    for (const BucketPlan::Bucket& bucket : plan.buckets) bytes += padded(bucket.bytes);
    return bytes;
}

}  // namespace

GradientStorage::GradientStorage(Arena& arena, Device device, std::span<const ParamSpec> params, BucketPlan plan,
                                 std::size_t align_bytes)
    : device_(device), params_(params.size()) {
    // In the worst case each gradient has a bucket to itself.
    for (std::size_t i = 0; i < params.size(); ++i) {
        params_[i].view = {nullptr, params[i].count, params[i].dtype, device_};
        capacity_ += padded(params_[i].view.bytes() + align_bytes);
    }
    capacity_ = std::max(capacity_, bytes_of(plan));  // a plan from ReducerOptions may have gaps
    memory_ = static_cast<std::byte*>(arena.allocate(capacity_));
    lay_out(std::move(plan));
}

void GradientStorage::lay_out(BucketPlan plan) {
    assert(bytes_of(plan) <= capacity_);
    plan_ = std::move(plan);
    buckets_.clear();
    gradients_.assign(plan_.buckets.size(), {});
    std::byte* at = memory_;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        const BucketPlan::Bucket& planned = plan_.buckets[b];
        buckets_.push_back({at, planned.bytes / size_of(planned.dtype), planned.dtype, device_});
        for (const BucketPlan::Slot& slot : planned.slots) {
            Param& param = params_[slot.param];
            param.view.data = at + slot.offset_bytes;
            param.bucket = b;
            gradients_[b].push_back({.param = slot.param, .values = param.view});
        }
        at += padded(planned.bytes);
    }
}

GradBucket GradientStorage::bucket(std::size_t index) const {
    return {.index = index,
            .last = index + 1 == buckets_.size(),
            .buffer = buckets_[index],
            .gradients = gradients_[index]};
}

std::size_t GradientStorage::bucket_bytes() const {
    std::size_t bytes = 0;
    for (const BucketPlan::Bucket& bucket : plan_.buckets) bytes += bucket.bytes;
    return bytes;
}

}  // namespace ddp::detail

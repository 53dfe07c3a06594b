// The WireFormat of device memory: kernels on the bucket's stream.
#include <cstddef>
#include <memory>
#include <vector>

#include "worker_lib/src/cuda/kernels.hpp"
#include "worker_lib/src/reducer/wire_format.hpp"

namespace ddp::detail {
namespace {

class DeviceWireFormat final : public WireFormat {
public:
    DeviceWireFormat(const GroupDevice& device, Arena& arena, const BucketPlan& plan, bool error_feedback)
        : kernels_(GradientKernels::of(device)) {
        if (error_feedback) allocate_residuals(arena, plan);
    }

    void narrow(const GradBucket& bucket, const Buffer& wire) override {
        const DeviceScope scope(kernels_->device());
        if (residuals_.empty()) return copy(bucket.buffer, wire, bucket);
        std::vector<FeedbackChunk> chunks;
        for (const GradBucket::Gradient& gradient : bucket.gradients)
            chunks.push_back({.gradient = static_cast<float*>(gradient.values.data),
                              .wire = part_of(wire, bucket, gradient),
                              .residual = residuals_[gradient.param],
                              .count = gradient.values.count});
        kernels_->feed_back(chunks, wire.dtype, stream_of(bucket));
    }

    void widen(const Buffer& wire, const GradBucket& bucket) override {
        const DeviceScope scope(kernels_->device());
        if (residuals_.empty()) return copy(wire, bucket.buffer, bucket);
        // Without the padding between gradients: feed_back() has not written that of the wire.
        std::vector<CopyChunk> chunks;
        for (const GradBucket::Gradient& gradient : bucket.gradients)
            chunks.push_back(
                {.to = gradient.values.data, .from = part_of(wire, bucket, gradient), .count = gradient.values.count});
        kernels_->copy(chunks, wire.dtype, DType::F32, 1, stream_of(bucket));
    }

private:
    static CUstream stream_of(const GradBucket& bucket) { return static_cast<CUstream>(bucket.stream.handle); }

    static void* part_of(const Buffer& wire, const GradBucket& bucket, const GradBucket::Gradient& gradient) {
        const auto offset =
            static_cast<const std::byte*>(gradient.values.data) - static_cast<const std::byte*>(bucket.buffer.data);
        return static_cast<std::byte*>(wire.data) + offset / 2;
    }

    void copy(const Buffer& from, const Buffer& to, const GradBucket& bucket) const {
        const CopyChunk whole{.to = to.data, .from = from.data, .count = to.count};
        kernels_->copy(std::span(&whole, 1), from.dtype, to.dtype, 1, stream_of(bucket));
    }

    /// Gives each gradient a residual, all from one block. The plan has no counts: a gradient has at most the elements
    /// up to the next one. A rebuilt plan has the same gradients, so that it finds theirs here.
    void allocate_residuals(Arena& arena, const BucketPlan& plan) {
        std::vector<std::size_t> offsets;
        std::size_t bytes = 0;
        for (const BucketPlan::Bucket& bucket : plan.buckets) {
            if (bucket.dtype != DType::F32) continue;
            for (std::size_t k = 0; k < bucket.slots.size(); ++k) {
                const BucketPlan::Slot& slot = bucket.slots[k];
                if (slot.param >= offsets.size()) offsets.resize(slot.param + 1, 0);
                offsets[slot.param] = bytes;
                const bool last = k + 1 == bucket.slots.size();
                bytes += (last ? bucket.bytes : bucket.slots[k + 1].offset_bytes) - slot.offset_bytes;
            }
        }
        auto* const block = static_cast<std::byte*>(arena.allocate(bytes));
        for (const std::size_t offset : offsets) residuals_.push_back(reinterpret_cast<float*>(block + offset));
    }

    const std::shared_ptr<const GradientKernels> kernels_;
    std::vector<float*> residuals_;  ///< by parameter; empty: no error feedback
};

}  // namespace

std::unique_ptr<WireFormat> make_device_wire_format(const GroupDevice& device, Arena& arena, const BucketPlan& plan,
                                                    bool error_feedback) {
    return std::make_unique<DeviceWireFormat>(device, arena, plan, error_feedback);
}

}  // namespace ddp::detail

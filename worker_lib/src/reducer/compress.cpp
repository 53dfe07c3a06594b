// compress(): a hook that sends buckets of f32 as f16 or bf16. narrow() and widen() (values.hpp) convert, and round.

#include <memory>
#include <string>
#include <utility>

#include "ddp/comm_hook.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp {
namespace {

/// Sends f32 buckets in a type of half the size, from wire buffers in the group's arena. One reducer uses it.
class Compression final : public CommHook {
public:
    Compression(DType wire_type, CompressOptions options) : wire_type_(wire_type), options_(options) {}

    void prepare(ProcessGroup& group, const BucketPlan& plan) override {
        if (group_ != nullptr && group_ != &group) {  // its wire buffers are in the first group's arena
            throw Error(ErrorCode::InvalidArgument, "compress: one hook was passed to two reducers, of the groups '" +
                                                        group_->name() + "' and '" + group.name() +
                                                        "'. Make one for each");
        }
        allocate_wires(group.arena(), plan);
        group_ = &group;  // last: a reducer whose construction fails never calls release()
    }

    Work launch(const GradBucket& bucket) override {
        const OpOptions options{.label = labels_[bucket.index]};
        if (!narrows(bucket)) return group_->all_reduce(bucket.buffer, ReduceOp::Avg, options);
        const Buffer wire = wire_of(bucket);
        if (options_.error_feedback) add_residuals(bucket);
        detail::narrow(bucket.buffer, wire);
        if (options_.error_feedback) keep_residuals(bucket, wire);
        return group_->all_reduce(wire, ReduceOp::Avg, options);
    }

    void complete(const GradBucket& bucket) override {
        if (narrows(bucket)) detail::widen(wire_of(bucket), bucket.buffer);
    }

    void release() override {
        group_ = nullptr;
        memory_ = nullptr;
        room_ = 0;
        residuals_.clear();  // the next reducer may be another model's
    }

private:
    static bool narrows(const GradBucket& bucket) { return bucket.buffer.dtype == DType::F32; }

    /// Gives each bucket a wire buffer. All are cut from one block, which is kept: a rebuilt plan has the same
    /// gradients in other buckets and needs little more memory, if any, and an arena frees nothing.
    void allocate_wires(Arena& arena, const BucketPlan& plan) {
        std::size_t needed = 0;
        offsets_.clear();
        labels_.clear();
        for (const BucketPlan::Bucket& bucket : plan.buckets) {
            labels_.push_back("bucket " + std::to_string(labels_.size()));
            offsets_.push_back(needed);
            needed += bucket.bytes / 2 + kAlignBytes - bucket.bytes / 2 % kAlignBytes;
        }
        if (needed <= room_) return;
        memory_ = static_cast<std::byte*>(arena.allocate(needed));
        room_ = needed;
    }

    [[nodiscard]] Buffer wire_of(const GradBucket& bucket) const {
        return {memory_ + offsets_[bucket.index], bucket.buffer.count, wire_type_, Device::Cpu};
    }

    std::vector<float>& residual_of(const GradBucket::Gradient& gradient) {
        if (gradient.param >= residuals_.size()) residuals_.resize(gradient.param + 1);
        auto& residual = residuals_[gradient.param];
        if (residual.empty()) residual.resize(gradient.values.count, 0.0f);
        return residual;
    }

    void add_residuals(const GradBucket& bucket) {
        const detail::ScopedFloatEnvironment floats;
        for (const auto& gradient : bucket.gradients) {
            auto* values = static_cast<float*>(gradient.values.data);
            const std::vector<float>& residual = residual_of(gradient);
            for (std::size_t i = 0; i < residual.size(); ++i) values[i] += residual[i];
        }
    }

    void keep_residuals(const GradBucket& bucket, const Buffer& wire) {
        const detail::ScopedFloatEnvironment floats;
        const auto* begin = static_cast<const std::byte*>(bucket.buffer.data);
        for (const auto& gradient : bucket.gradients) {
            const auto* values = static_cast<const float*>(gradient.values.data);
            const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(gradient.values.data) - begin);
            std::vector<float>& residual = residual_of(gradient);
            const Buffer sent{static_cast<std::byte*>(wire.data) + offset / 2, residual.size(), wire.dtype,
                              Device::Cpu};
            detail::widen(sent, Buffer(residual));
            for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = lost(values[i], residual[i]);
        }
    }

    /// Returns the rounding error of a value; 0 if it could not be sent (infinite or NaN), because the error would
    /// otherwise return in every step.
    static float lost(float value, float sent) {
        const float difference = value - sent;
        return difference - difference == 0 ? difference : 0;
    }

    static constexpr std::size_t kAlignBytes = 128;
    const DType wire_type_;
    const CompressOptions options_;
    ProcessGroup* group_ = nullptr;
    std::byte* memory_ = nullptr;
    std::size_t room_ = 0;                       ///< bytes
    std::vector<std::size_t> offsets_;           ///< by bucket
    std::vector<std::string> labels_;            ///< by bucket
    std::vector<std::vector<float>> residuals_;  ///< by parameter, so that a rebuilt plan does not lose them
};

}  // namespace

std::shared_ptr<CommHook> compress(DType wire_type, CompressOptions options) {
    if (wire_type != DType::F16 && wire_type != DType::BF16) {
        throw Error(ErrorCode::InvalidArgument,
                    "compress: the wire type has to be f16 or bf16, not " + std::string(to_string(wire_type)));
    }
    return std::make_shared<Compression>(wire_type, options);
}

}  // namespace ddp

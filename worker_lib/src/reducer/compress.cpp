// compress(): a hook that sends buckets of f32 as f16 or bf16. WireFormat converts them, and keeps the residuals.

#include <memory>
#include <string>
#include <utility>

#include "ddp/comm_hook.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/wire_format.hpp"

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
        if (group_ == nullptr) {
            const detail::GroupDevice* const device = detail::GroupImpl::of(group).backend().device();
            where_ = device == nullptr ? Device::Cpu : Device::Cuda;
            format_ = device == nullptr
                          ? detail::make_host_wire_format(options_.error_feedback)
                          : detail::make_device_wire_format(*device, group.arena(), plan, options_.error_feedback);
        }
        group_ = &group;  // last: a reducer whose construction fails never calls release()
    }

    Work launch(const GradBucket& bucket) override {
        const OpOptions options{.label = labels_[bucket.index], .stream = bucket.stream};
        if (!narrows(bucket)) return group_->all_reduce(bucket.buffer, ReduceOp::Avg, options);
        const Buffer wire = wire_of(bucket);
        format_->narrow(bucket, wire);
        return group_->all_reduce(wire, ReduceOp::Avg, options);
    }

    void complete(const GradBucket& bucket) override {
        if (narrows(bucket)) format_->widen(wire_of(bucket), bucket);
    }

    void release() override {
        group_ = nullptr;
        memory_ = nullptr;
        room_ = 0;
        format_ = nullptr;  // the next reducer may be another model's
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
        return {memory_ + offsets_[bucket.index], bucket.buffer.count, wire_type_, where_};
    }

    static constexpr std::size_t kAlignBytes = 128;
    const DType wire_type_;
    const CompressOptions options_;
    ProcessGroup* group_ = nullptr;
    std::byte* memory_ = nullptr;
    std::size_t room_ = 0;                        ///< bytes
    std::vector<std::size_t> offsets_;            ///< by bucket
    std::vector<std::string> labels_;             ///< by bucket
    Device where_ = Device::Cpu;                  ///< the wire buffers are
    std::unique_ptr<detail::WireFormat> format_;  ///< since prepare()
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

#include "worker_lib/src/reducer/device_gradients.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "worker_lib/src/cuda/call_checks.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {
namespace {

CUstream handle(Stream stream) { return static_cast<CUstream>(stream.handle); }

}  // namespace

DeviceGradients::DeviceGradients(const GroupDevice& group, Arena& arena, const GradientStorage& storage)
    : device_(std::make_shared<GroupDevice>(group.cuda(), group.index(), StreamPriority::kHighest)),
      storage_(storage),
      kernels_(GradientKernels::of(*device_)),
      words_(std::make_shared<StepWords>(device_)),
      step_ok_(arena.allocate(sizeof(std::uint32_t))),
      event_(device_->acquire_event()),
      ready_(device_) {
    const DeviceScope scope(*device_);
    check_cuda(device_->cuda(),
               device_->cuda().memcpy_async(device_pointer(step_ok_), words_->one_word(), sizeof(std::uint32_t),
                                            device_->stream()),
               "cuMemcpyAsync");
}

DeviceGradients::~DeviceGradients() { device_->release(event_); }

void DeviceGradients::check_first(Stream stream, std::string_view call) {
    checked_.clear();
    check(stream, call);
}

/// A stream of another device shows when it is used, which must not be in the middle of a backward. A stream of an
/// earlier mark may be captured since, and must not get the record that its bucket waits for: it would be part of the
/// caller's graph. Whether this call would make that record is not foreseen.
void DeviceGradients::check(Stream stream, std::string_view call) {
    const CudaApi& cuda = device_->cuda();
    const DeviceScope scope(*device_);
    if (const std::string wrong = capture_complaint(handle(stream)); !wrong.empty())
        refuse(fmt::format("{}: {}", call, wrong));
    if (std::ranges::find(checked_, handle(stream)) != checked_.end()) return;
    const CUresult recorded = cuda.event_record(event_, handle(stream));
    if (recorded == CUDA_ERROR_INVALID_HANDLE) {
        refuse(
            fmt::format("{}: the stream belongs to another device, or has been destroyed; the gradients are on CUDA "
                        "device {}",
                        call, device_->index()));
    }
    check_cuda(cuda, recorded, "cuEventRecord on the caller's stream");
    checked_.push_back(handle(stream));
}

std::string DeviceGradients::capture_complaint(CUstream stream) const {
    std::string wrong = detail::capture_complaint(device_->cuda(), stream);
    if (captured_) {
        if (!wrong.empty()) return {};
        return "its stream does not take part in the capture. Have it wait for an event of the captured stream first";
    }
    if (wrong.empty()) wrong = ready_.capture_complaint(stream);
    return wrong.empty() ? wrong : wrong + ": make the call before or after the capture";
}

void DeviceGradients::check(const Buffer& external, std::string_view call) {
    const DeviceScope scope(*device_);
    const std::string wrong = memory_complaint(device_->cuda(), external, "buffer", device_->index());
    if (!wrong.empty()) refuse(fmt::format("{}: {}", call, wrong));
}

void DeviceGradients::zero(const Buffer& buffer, CUstream stream) const {
    if (buffer.count == 0) return;
    check_cuda(device_->cuda(), device_->cuda().memset_d8_async(device_pointer(buffer.data), 0, buffer.bytes(), stream),
               "cuMemsetD8Async");
}

void DeviceGradients::order(CUstream leader, CUstream follower) {
    check_cuda(device_->cuda(), device_->cuda().event_record(event_, leader), "cuEventRecord");
    check_cuda(device_->cuda(), device_->cuda().stream_wait_event(follower, event_, 0), "cuStreamWaitEvent");
}

void DeviceGradients::clear(Stream stream) {
    const DeviceScope scope(*device_);
    for (std::size_t b = 0; b < storage_.plan().buckets.size(); ++b) zero(storage_.bucket(b).buffer, handle(stream));
}

void DeviceGradients::zero_all(Stream stream) {
    clear(stream);
    const DeviceScope scope(*device_);
    for (std::size_t i = 0; i < storage_.params(); ++i) {
        if (const auto& external = storage_.external(i)) zero(*external, handle(stream));
    }
}

void DeviceGradients::fill(std::size_t param, Fill how, Stream stream) {
    if (how != Fill::kZero) return;  // pack() copies bound gradients, all of a bucket in one launch
    const DeviceScope scope(*device_);
    zero(storage_.view(param), handle(stream));
    if (const auto& external = storage_.external(param)) zero(*external, handle(stream));
}

/// What earlier backwards have left in the gradients is ready on `stream`, also for those that are not marked ready on
/// any stream in this one.
void DeviceGradients::begin(Stream stream) {
    const DeviceScope scope(*device_);
    ready_.begin(storage_.plan().buckets.size());
    order(handle(stream), device_->stream());
}

void DeviceGradients::mark(std::size_t param, Stream stream) {
    const DeviceScope scope(*device_);
    ready_.mark(storage_.bucket_of(param), handle(stream));
}

void DeviceGradients::pack(std::size_t bucket, double factor) {
    const DeviceScope scope(*device_);
    ready_.wait(bucket, device_->stream());
    chunks_.clear();
    const GradBucket complete = storage_.bucket(bucket);
    for (const GradBucket::Gradient& gradient : complete.gradients) {
        const auto& external = storage_.external(gradient.param);
        if (external || factor != 1)
            chunks_.push_back({.to = gradient.values.data,
                               .from = external ? external->data : gradient.values.data,
                               .count = gradient.values.count});
    }
    if (!chunks_.empty())
        kernels_->copy(chunks_, complete.buffer.dtype, complete.buffer.dtype, factor, device_->stream());
}

void DeviceGradients::unpack(std::size_t bucket, double factor) {
    const DeviceScope scope(*device_);
    const GradBucket done = storage_.bucket(bucket);
    const DType type = done.buffer.dtype;
    if (done.buffer.count == 0) return;
    kernels_->seal(done.buffer.data, done.buffer.bytes(), words_->given_up_word(), device_pointer(step_ok_),
                   device_->stream());
    if (factor != 1) {
        const CopyChunk whole{.to = done.buffer.data, .from = done.buffer.data, .count = done.buffer.count};
        kernels_->copy(std::span(&whole, 1), type, type, factor, device_->stream());
    }
    chunks_.clear();
    for (const GradBucket::Gradient& gradient : done.gradients) {
        if (const auto& external = storage_.external(gradient.param))
            chunks_.push_back({.to = external->data, .from = gradient.values.data, .count = external->count});
    }
    if (!chunks_.empty()) kernels_->copy(chunks_, type, type, 1, device_->stream());
}

void DeviceGradients::end(Stream stream) {
    const DeviceScope scope(*device_);
    if (!captured_) words_->write_done(++ended_, device_->stream());
    order(device_->stream(), handle(stream));
}

void DeviceGradients::end_replay(Stream stream) {
    const DeviceScope scope(*device_);
    words_->write_done(++ended_, handle(stream));
}

std::uint64_t DeviceGradients::confirmed(std::uint64_t /*ended*/) const { return words_->confirmed(ended_); }

Buffer DeviceGradients::step_ok() const { return {step_ok_, 1, DType::U32, Device::Cuda}; }

}  // namespace ddp::detail

#pragma once
// DeviceGradients: gradients in the memory of a CUDA device. Every call only enqueues. The exchange of all buckets is
// on one stream of high priority: it waits for the streams that compute a bucket's gradients, packs and sends it, and
// unpacks it. The caller's stream waits for that stream at the end of the backward.
//
// See docs/design/038-device-gradients.md.

#include <memory>
#include <vector>

#include "worker_lib/src/cuda/kernels.hpp"
#include "worker_lib/src/cuda/step_words.hpp"
#include "worker_lib/src/reducer/gradient_memory.hpp"
#include "worker_lib/src/reducer/ready_events.hpp"

namespace ddp::detail {

class DeviceGradients final : public GradientMemory {
public:
    /// `storage` is of the memory of `group`, a group of device memory. Both must outlive it. Throws Error{System}.
    DeviceGradients(const GroupDevice& group, Arena& arena, const GradientStorage& storage);
    ~DeviceGradients() override;

    /// Returns the words by which the group declares on the device that it has been given up.
    [[nodiscard]] const std::shared_ptr<StepWords>& words() const { return words_; }

    [[nodiscard]] const std::shared_ptr<GroupDevice>& device() const { return device_; }
    /// From now on the caller's streams are, or are not, captured into a CUDA graph. Not in a backward.
    void set_captured(bool captured) { captured_ = captured; }
    /// Counts a synchronised backward whose averages a replay on `stream` has left.
    void end_replay(Stream stream);

    [[nodiscard]] Stream stream() const override { return {device_->stream()}; }
    void check_first(Stream stream, std::string_view call) override;
    void check(Stream stream, std::string_view call) override;
    void check(const Buffer& external, std::string_view call) override;
    void clear(Stream stream) override;
    void zero_all(Stream stream) override;
    void fill(std::size_t param, Fill how, Stream stream) override;
    void begin(Stream stream) override;
    void mark(std::size_t param, Stream stream) override;
    void pack(std::size_t bucket, double factor) override;
    void unpack(std::size_t bucket, double factor) override;
    void end(Stream stream) override;
    [[nodiscard]] std::uint64_t confirmed(std::uint64_t ended) const override;
    [[nodiscard]] Buffer step_ok() const override;

private:
    void zero(const Buffer& buffer, CUstream stream) const;
    /// Makes `follower` wait for what is enqueued on `leader` now.
    void order(CUstream leader, CUstream follower);
    /// Returns why a call on the stream cannot be made now, as to captures; empty: it can.
    [[nodiscard]] std::string capture_complaint(CUstream stream) const;

    const std::shared_ptr<GroupDevice> device_;  ///< with the stream of the exchange
    const GradientStorage& storage_;
    const std::shared_ptr<const GradientKernels> kernels_;
    const std::shared_ptr<StepWords> words_;
    void* const step_ok_;  ///< a u32
    const CUevent event_;  ///< for order() and check(): a wait is for the record before it
    ReadyEvents ready_;
    std::vector<CUstream> checked_;  ///< streams that are known to be of this device, since check_first()
    std::vector<CopyChunk> chunks_;  ///< of the bucket that is packed or unpacked
    std::uint64_t ended_ = 0;        ///< synchronised backwards
    bool captured_ = false;
};

}  // namespace ddp::detail

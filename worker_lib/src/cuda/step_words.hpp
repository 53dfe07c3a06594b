#pragma once
// StepWords: words of host memory that the host and one CUDA device share, so that each learns without a call or a wait
// how far the other has come. The reducer makes them. Any thread.

#include <cstdint>
#include <memory>
#include <optional>

#include "common/mutex.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace ddp::detail {

class StepWords {
public:
    /// Throws Error{System} when there is no pinned memory.
    explicit StepWords(std::shared_ptr<GroupDevice> device);
    /// Does not wait for the device longer than 10 s.
    ~StepWords();
    StepWords(const StepWords&) = delete;
    StepWords& operator=(const StepWords&) = delete;

    /// Returns the device's address of a 32-bit word that is 1 from give_up() on, and 0 before.
    [[nodiscard]] CUdeviceptr given_up_word() const;
    /// Returns the device's address of a 32-bit word that is always 1.
    [[nodiscard]] CUdeviceptr one_word() const;
    /// Makes `stream` write the number of a step, which it has done then. A fill can do that on every device;
    /// cuStreamWriteValue64 only on those with CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS. Throws Error{System}.
    void write_done(std::uint64_t step, CUstream stream) const;

    /// Declares that what kernels of the group leave from now on may be wrong. To be called before its communicator is
    /// aborted.
    void give_up() EXCLUDES(mutex_);
    /// Returns the number of the last step that the device has done, of those done before give_up().
    /// last   the last step of write_done(), 0: none
    [[nodiscard]] std::uint64_t confirmed(std::uint64_t last) const EXCLUDES(mutex_);

private:
    struct Words;

    const std::shared_ptr<GroupDevice> device_;
    Words* words_ = nullptr;
    CUdeviceptr address_ = 0;
    mutable ddprun::Mutex mutex_;
    std::optional<std::uint32_t> done_at_end_ GUARDED_BY(mutex_);  ///< since give_up()
};

}  // namespace ddp::detail

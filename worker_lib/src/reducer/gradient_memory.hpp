#pragma once
// GradientMemory: reads and writes the memory of gradients and buckets. HostGradients does it at once, on the calling
// thread; DeviceGradients enqueues it on streams of a CUDA device. BucketExchange and the reducer decide what is done,
// and in which order.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "worker_lib/src/reducer/gradient_storage.hpp"

namespace ddp::detail {

class GradientMemory {
public:
    virtual ~GradientMemory() = default;

    /// Returns the stream on which buckets are exchanged; a null handle: the memory is the host's.
    [[nodiscard]] virtual Stream stream() const = 0;
    /// Throws Error{InvalidArgument} "CALL: …" if `stream` cannot be used now. For calls outside of a backward: it
    /// forgets the streams that were found right before, whose handles may be those of other streams now. Under the
    /// reducer's mutex, as check().
    virtual void check_first(Stream stream, std::string_view call) = 0;
    /// The same for calls in a backward.
    virtual void check(Stream stream, std::string_view call) = 0;
    /// Throws Error{InvalidArgument} "CALL: …" if `external` cannot be a gradient's memory.
    virtual void check(const Buffer& external, std::string_view call) = 0;

    // The caller's `stream` means nothing for host memory. Otherwise gradients are read behind it, and written on it.
    /// Sets all buckets to zero.
    virtual void clear(Stream stream) = 0;
    /// Sets all gradients to zero, those in bound buffers, too.
    virtual void zero_all(Stream stream) = 0;
    /// Takes the action for a gradient that the calling thread has claimed: kZero clears it in its bucket and in its
    /// bound buffer, kCopy copies it from the bound buffer into the bucket, at the latest in pack(); kNothing and
    /// kNotYet change nothing. Different threads may fill different gradients at the same time.
    virtual void fill(std::size_t param, Fill how, Stream stream) = 0;

    // A synchronised backward; under the reducer's mutex, but unpack():
    virtual void begin(Stream stream) = 0;
    /// Notes that `stream` completes the gradient.
    virtual void mark(std::size_t param, Stream stream) = 0;
    /// Prepares a complete bucket for its exchange: multiplies it by `factor`.
    virtual void pack(std::size_t bucket, double factor) = 0;
    /// Multiplies a bucket that has been exchanged by `factor`, and copies it to the bound buffers.
    virtual void unpack(std::size_t bucket, double factor) = 0;
    /// Ends it: what the caller enqueues on `stream` from now on comes after all buckets.
    virtual void end(Stream stream) = 0;

    /// Returns how many of the `ended` backwards have left averages in the memory.
    [[nodiscard]] virtual std::uint64_t confirmed(std::uint64_t ended) const = 0;
    /// Returns the word on the device that confirms them; nothing on the host.
    [[nodiscard]] virtual Buffer step_ok() const = 0;
};

}  // namespace ddp::detail

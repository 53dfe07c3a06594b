#pragma once
// GradientMemory: reads and writes the memory of gradients and buckets. HostGradients does it at once, on the calling
// thread. BucketExchange and the reducer decide what is done, and in which order.

#include <cstddef>

#include "worker_lib/src/reducer/gradient_storage.hpp"

namespace ddp::detail {

class GradientMemory {
public:
    virtual ~GradientMemory() = default;

    /// Sets all buckets to zero: the storage has been laid out by another plan.
    virtual void clear() = 0;
    /// Takes the action for a gradient that the calling thread has claimed: kZero clears it in its bucket and in its
    /// bound buffer, kCopy copies it from the bound buffer into the bucket, kNothing and kNotYet change nothing.
    /// Different threads may fill different gradients at the same time.
    virtual void fill(std::size_t param, Fill how) = 0;
    /// Prepares a complete bucket for its exchange: multiplies it by `factor`.
    virtual void pack(std::size_t bucket, double factor) = 0;
    /// Multiplies a bucket that has been exchanged by `factor`, and copies it to the bound buffers.
    virtual void unpack(std::size_t bucket, double factor) = 0;
};

}  // namespace ddp::detail

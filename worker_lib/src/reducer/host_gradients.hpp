#pragma once
// HostGradients: gradients in host memory, which the calling thread reads and writes. It has no lock.

#include "worker_lib/src/reducer/gradient_memory.hpp"

namespace ddp::detail {

class HostGradients final : public GradientMemory {
public:
    /// Clears the buckets, so that no backward meets pages that have never been touched. `storage` must outlive it.
    explicit HostGradients(const GradientStorage& storage);

    void clear() override;
    void fill(std::size_t param, Fill how) override;
    void pack(std::size_t bucket, double factor) override;
    void unpack(std::size_t bucket, double factor) override;

private:
    void zero(std::size_t param) const;
    void copy_in(std::size_t param) const;

    const GradientStorage& storage_;
};

}  // namespace ddp::detail

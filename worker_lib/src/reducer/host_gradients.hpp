#pragma once
// HostGradients: gradients in host memory, which the calling thread reads and writes. It has no lock.

#include "worker_lib/src/reducer/gradient_memory.hpp"

namespace ddp::detail {

class HostGradients final : public GradientMemory {
public:
    /// Clears the buckets, so that no backward meets pages that have never been touched. `storage` must outlive it.
    explicit HostGradients(const GradientStorage& storage);

    [[nodiscard]] Stream stream() const override { return {}; }
    void check_first(Stream /*stream*/, std::string_view /*call*/) override {}
    void check(Stream /*stream*/, std::string_view /*call*/) override {}
    void check(const Buffer& /*external*/, std::string_view /*call*/) override {}
    void clear(Stream stream) override;
    void zero_all(Stream stream) override;
    void fill(std::size_t param, Fill how, Stream stream) override;
    void begin(Stream /*stream*/) override {}
    void mark(std::size_t /*param*/, Stream /*stream*/) override {}
    void pack(std::size_t bucket, double factor) override;
    void unpack(std::size_t bucket, double factor) override;
    void end(Stream /*stream*/) override {}
    [[nodiscard]] std::uint64_t confirmed(std::uint64_t ended) const override { return ended; }
    [[nodiscard]] Buffer step_ok() const override { return {}; }

private:
    void zero(std::size_t param) const;
    void copy_in(std::size_t param) const;

    const GradientStorage& storage_;
};

}  // namespace ddp::detail

#pragma once
// DistributedSampler: which samples of a data set this rank sees in which order; equal to PyTorch's bit for bit.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp {

class DistributedSampler {
public:
    /// n samples shared by `replicas` ranks. The last ranks get repeated samples when n is not a multiple, unless
    /// drop_last. Throws Error{InvalidArgument} for replicas < 1 or a rank outside 0 … replicas - 1, or n = 0.
    DistributedSampler(std::size_t n, int replicas, int rank, bool shuffle = true, std::uint64_t seed = 0,
                       bool drop_last = false);

    /// A new permutation per epoch; the same on all ranks.
    void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }
    /// Samples of one rank in one epoch.
    [[nodiscard]] std::size_t size() const { return num_samples_; }
    /// This rank's samples of the epoch, in order. Costs O(n).
    [[nodiscard]] std::vector<std::int64_t> indices() const;
    /// Whether the sample at this rank's position is a repetition that only fills up (for exact evaluation).
    [[nodiscard]] bool is_padding(std::size_t local_position) const;

private:
    std::size_t n_;
    std::size_t replicas_;
    std::size_t rank_;
    bool shuffle_;
    std::uint64_t seed_;
    bool drop_last_;
    std::uint64_t epoch_ = 0;
    std::size_t num_samples_ = 0;
};

}  // namespace ddp

#pragma once
// DistributedSampler: decides which samples of a data set this rank sees, and in which order.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// Options of a DistributedSampler. The same on every rank.
struct SamplerOptions {
    bool shuffle = true;     ///< a new permutation in each epoch; false: in the order of the data set
    std::uint64_t seed = 0;  ///< of the permutations
    /// true: the surplus of a data set that is not a multiple of the replicas is dropped. false: the last ranks get
    /// repeated samples.
    bool drop_last = false;
};

/// Computes the indices of this rank's samples in each epoch. Equal to PyTorch's, bit for bit. A plain value. One
/// thread at a time.
class DistributedSampler {
public:
    /// Shards `n` samples over `replicas` ranks. Throws Error{InvalidArgument} for n = 0, replicas < 1, or a rank
    /// outside 0 … replicas - 1.
    DistributedSampler(std::size_t n, int replicas, int rank, SamplerOptions options = {});

    /// Selects the epoch, each with its own permutation. Pass the same one on all ranks.
    void set_epoch(std::uint64_t epoch);
    /// Leaves out the first `consumed` samples of the epoch, which the ranks have had together, and shares the others
    /// among the replicas. So an epoch that 4 ranks began can go on with 3, and each sample counts once. With as many
    /// replicas as before each rank gets the rest of its own samples. Holds until set_epoch(). Pass the same number on
    /// all ranks: steps · batch size · replicas, for example. More than n, with the repeated samples at the end of an
    /// epoch, counts as n.
    void resume_from(std::size_t consumed);
    /// Returns how many samples a rank gets in the epoch, or in what is left of it.
    [[nodiscard]] std::size_t size() const { return num_samples_; }
    /// Returns the indices of this rank's samples, in order. Costs O(n).
    [[nodiscard]] std::vector<std::int64_t> indices() const;
    /// Returns whether the sample at this position of indices() is a repetition, which exact evaluation has to skip.
    /// Throws Error{InvalidArgument} for a position of size() or more.
    [[nodiscard]] bool is_padding(std::size_t local_position) const;

private:
    std::size_t n_;
    std::size_t replicas_;
    std::size_t rank_;
    SamplerOptions options_;
    std::uint64_t epoch_ = 0;
    std::size_t consumed_ = 0;
    std::size_t num_samples_ = 0;
};

}  // namespace ddp

#include "ddp/sampler.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ddp/error.hpp"
#include "worker_lib/src/data/permutation.hpp"

namespace ddp {

DistributedSampler::DistributedSampler(std::size_t n, int replicas, int rank, SamplerOptions options)
    : n_(n), replicas_(static_cast<std::size_t>(replicas)), rank_(static_cast<std::size_t>(rank)), options_(options) {
    if (n == 0) throw Error(ErrorCode::InvalidArgument, "DistributedSampler: there is no sample to share (n = 0)");
    if (replicas < 1) {
        throw Error(ErrorCode::InvalidArgument,
                    "DistributedSampler: replicas is " + std::to_string(replicas) + ", it must be at least 1");
    }
    if (rank < 0 || rank >= replicas) {
        throw Error(ErrorCode::InvalidArgument, "DistributedSampler: rank " + std::to_string(rank) + " of " +
                                                    std::to_string(replicas) + " replicas does not exist");
    }
    resume_from(0);
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
    epoch_ = epoch;
    resume_from(0);
}

void DistributedSampler::resume_from(std::size_t consumed) {
    consumed_ = std::min(consumed, n_);
    const std::size_t rest = n_ - consumed_;
    num_samples_ = options_.drop_last ? rest / replicas_ : (rest + replicas_ - 1) / replicas_;
}

std::vector<std::int64_t> DistributedSampler::indices() const {
    std::vector<std::int64_t> order;
    if (options_.shuffle) order = detail::permutation(n_, options_.seed + epoch_);
    std::vector<std::int64_t> mine(num_samples_);
    for (std::size_t i = 0; i < num_samples_; ++i) {
        const std::size_t position = (consumed_ + rank_ + i * replicas_) % n_;  // past the end: again from the front
        mine[i] = options_.shuffle ? order[position] : static_cast<std::int64_t>(position);
    }
    return mine;
}

bool DistributedSampler::is_padding(std::size_t local_position) const {
    if (local_position >= num_samples_) {
        throw Error(ErrorCode::InvalidArgument, "DistributedSampler: position " + std::to_string(local_position) +
                                                    " is past this rank's " + std::to_string(num_samples_) +
                                                    " samples");
    }
    return rank_ + local_position * replicas_ >= n_ - consumed_;
}

}  // namespace ddp

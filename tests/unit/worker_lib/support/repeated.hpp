#pragma once
// Repeated: a collective that a rank repeats until a test breaks something in the middle of it.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ddp/context.hpp"
#include "ddp/transfer_batch.hpp"
#include "ddp/types.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"

namespace ddp::testing {

/// A rank's part: several pieces in each operation, so that the end comes in the middle of one.
inline constexpr std::size_t kPart = 200'000;

/// One collective of a rank, or "p2p", again and again with the same buffers: its input outside the arena, its output
/// inside. "large …": of so many pieces that sockets hold them only where the kernel lets buffers grow to 8 MB or more.
class Repeated {
public:
    Repeated(ProcessGroup& group, std::string what) : group_(group), what_(std::move(what)) {
        const auto ranks = static_cast<std::size_t>(group_.size());
        const std::size_t part = what_.starts_with("large ") ? 10 * kPart : kPart;
        for (std::size_t rank = 0; rank < ranks; ++rank) counts_.push_back(part + 7 * rank);
        own_ = counts_[static_cast<std::size_t>(group_.rank())];
        for (const std::size_t count : counts_) whole_ += count;
        input_.resize(std::max(whole_, ranks * own_), 1.0F);
        output_ = static_cast<float*>(group_.arena().allocate(input_.size() * sizeof(float)));
    }

    Work start() {
        const Buffer own_in = Buffer(std::span(input_).first(own_));
        const Buffer whole_in = Buffer(std::span(input_).first(whole_));
        const Buffer own_out{output_, own_, DType::F32};
        const Buffer whole_out{output_, whole_, DType::F32};
        if (what_ == "barrier") return group_.barrier();
        if (what_ == "p2p") return pass_on();
        if (what_ == "small all_reduce")
            return group_.all_reduce(Buffer(std::span(input_).first(1)), {output_, 1, DType::F32}, ReduceOp::Sum);
        if (what_ == "all_reduce") return group_.all_reduce(whole_in, whole_out, ReduceOp::Sum);
        if (what_ == "broadcast") return group_.broadcast(whole_out, 0);
        if (what_ == "reduce") return group_.reduce(whole_in, whole_out, ReduceOp::Sum, 0);
        if (what_ == "reduce_scatter") {
            const auto ranks = static_cast<std::size_t>(group_.size());
            return group_.reduce_scatter(Buffer(std::span(input_).first(ranks * kPart)), {output_, kPart, DType::F32},
                                         ReduceOp::Sum);
        }
        if (what_ == "all_gather_v") return group_.all_gather_v(own_in, whole_out, counts_);
        if (what_.ends_with("gather_v")) return group_.gather_v(own_in, whole_out, counts_, 0);
        if (what_ == "scatter_v") return group_.scatter_v(whole_in, own_out, counts_, 0);
        const Counts from_each(counts_.size(), own_);
        return group_.all_to_all_v(whole_in, counts_, {output_, counts_.size() * own_, DType::F32}, from_each);
    }

private:
    /// To the next rank, from the one before.
    Work pass_on() {
        const int ranks = group_.size();
        TransferBatch batch = group_.batch();
        batch.send(Buffer(std::span(input_).first(kPart)), (group_.rank() + 1) % ranks)
            .recv({output_, kPart, DType::F32}, (group_.rank() + ranks - 1) % ranks);
        return batch.start();
    }

    ProcessGroup& group_;
    const std::string what_;
    Counts counts_;
    std::size_t own_ = 0;
    std::size_t whole_ = 0;
    std::vector<float> input_;
    float* output_ = nullptr;
};

}  // namespace ddp::testing

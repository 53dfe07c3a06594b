#pragma once
// PowerSgd: a communication hook that sends matrices of gradients as two thin factors. For links that are slow.
//
//     auto hook = std::make_shared<ddp::PowerSgd>(params, ddp::PowerSgdOptions{.rank = 4, .start_step = 1000});
//     ddp::GradientReducer reducer(group, params, {.hook = hook});

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/export.hpp"

namespace ddp::detail {
class LowRankExchange;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// Options of a PowerSgd. The same on every rank.
struct PowerSgdOptions {
    int rank = 1;  ///< columns of the factors: more are more exact, and more bytes. 1 to 4 are usual
    /// Steps that are sent whole before: while the learning rate warms up, gradients change too fast for factors of the
    /// step before. A tenth of all steps is usual.
    std::uint64_t start_step = 1000;
    /// A matrix of n × m elements is compressed if (n + m) · rank · min_compression_rate < n · m.
    double min_compression_rate = 2;
    bool warm_start = true;      ///< begins with the factor of the step before, else with random numbers
    bool error_feedback = true;  ///< adds what was not sent to the gradient of the next step
    /// Every that many compressed steps the ranks average what they have not sent, so that what lasts on one rank alone
    /// does not grow for ever. Costs a plain all_reduce of the compressed gradients. 0: never.
    std::uint64_t settle_every = 500;
    /// Averages gradients exactly inside each node, and sends factors between the nodes' first ranks alone, which do
    /// all of the computing. Nodes may have different numbers of ranks. On a single node nothing is compressed.
    bool between_nodes = false;
    std::uint64_t seed = 0;  ///< of the random numbers
};

/// Sends each matrix of f32 gradients as the product of two thin factors (Vogels et al. 2019, "PowerSGD"); all other
/// gradients whole. The first dimension of ParamSpec::shape is that of the rows, which lie one after another in memory:
/// a matrix cut into other rows is not of low rank, and trains worse. The averages have the same bits on all ranks. It
/// computes on a thread of the reducer, and pays where a rank has less than some 10 Gbit/s to the others.
///
/// What was not sent is kept per parameter (error feedback), and costs as much memory as the compressed gradients. Host
/// memory only. One reducer uses it. A gradient that is not finite becomes NaN in all its elements on all ranks, and
/// the parameter's residual is dropped. A large learning rate makes error feedback diverge: lower it, or begin later.
class PowerSgd final : public CommHook {
public:
    /// Takes the parameters of the reducer. Throws Error{InvalidArgument} for a rank below 1, a rate below 1, and a
    /// shape that is not of ParamSpec::count elements.
    explicit PowerSgd(std::vector<ParamSpec> params, PowerSgdOptions options = {});
    ~PowerSgd() override;

    /// Gives all ranks rank 0's factors and number of steps. Collective.
    void prepare(ProcessGroup& group, const BucketPlan& plan) override;
    Work launch(const GradBucket& bucket) override;
    void complete(const GradBucket& bucket) override;
    void abort(std::string_view reason) override;
    void release() override;

    /// Averages over the ranks what was not sent. Collective, between two backwards. It changes the next average by
    /// rounding only.
    void settle();
    /// Returns the factors, what was not sent, and the number of steps, for a Checkpointer. Call settle() before
    /// save(), so that every rank has the same values. Their names begin with `prefix` and a dot, or with neither if it
    /// is empty: pass one of its own for each of several hooks in a checkpoint. The memory lives as long as the hook.
    [[nodiscard]] std::vector<NamedBuffer> state(std::string_view prefix = "power_sgd");
    /// Returns how many bytes this rank has given to collectives, without those inside its node if factors are sent
    /// between nodes. For comparison with the bytes of the gradients.
    [[nodiscard]] std::uint64_t bytes_sent() const;

private:
    std::unique_ptr<detail::LowRankExchange> exchange_;
};

}  // namespace ddp

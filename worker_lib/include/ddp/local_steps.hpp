#pragma once
// LocalSteps: ranks that train by themselves for many steps, and exchange what they have learnt in between: local SGD,
// DiLoCo, and streaming fragments of it.
//
//     ddp::LocalSteps outer(context.world(), {weight, bias});    // the parameters of an ordinary trainer
//     for (…) {
//         …forward, backward, inner optimiser, on this rank alone…
//         outer.step();
//     }

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// Options of LocalSteps: the outer optimiser, which takes what the ranks have changed for its gradient. The same on
/// every rank. The defaults are DiLoCo's (Douillard et al. 2023); a rate of 1 without momentum averages parameters.
struct OuterOptions {
    std::size_t every = 500;  ///< inner steps from one synchronisation of a parameter to the next
    double rate = 0.7;        ///< of the outer update
    double momentum = 0.9;    ///< of the outer update; 0: none, which saves 4 bytes per parameter
    bool nesterov = true;     ///< Nesterov's form of the momentum
    /// Parts of the model that synchronise in turn, each every `every` steps, which must be a multiple of it. Less is
    /// sent at a time (Streaming DiLoCo, Douillard et al. 2025).
    std::size_t fragments = 1;
    /// Inner steps from sending to applying, during which the exchange runs. Less than every / fragments.
    std::size_t delay = 0;
    /// Which share of the local values a synchronisation keeps, from 0 to 1; the rest comes from the outer update. With
    /// more than 0 the ranks' parameters stay different.
    double keep_local = 0;
    DType wire = DType::F32;  ///< in which changes are sent: f32, bf16 or f16
};

/// Synchronises the parameters of ranks that train by themselves, every OuterOptions::every steps. With θ the value
/// after the last synchronisation, the ranks average Δ = θ - local, and update θ by SGD with momentum:
/// v = momentum · v + Δ, θ = θ - rate · (Δ + momentum · v) with `nesterov`, else θ = θ - rate · v. θ has the same bits
/// on all ranks. Keeps 8 bytes per parameter, and room for what is sent.
///
/// Inside a node use a GradientReducer, and LocalSteps between the ranks of equal local rank. One thread makes all
/// calls, and every rank as many. An exchange compares the number of the step: Error{Mismatch} names both if a rank has
/// loaded another state, or has forgotten an exchange in flight by a restore() that the others did not call. Host
/// memory only.
class LocalSteps {
    class Impl;

public:
    /// Takes parameters of f32 in host memory, which have to stay valid, and broadcasts rank 0's values. Collective.
    /// Throws Error{InvalidArgument} for other memory and for options that do not fit together, Error{Mismatch} if the
    /// ranks have other parameters or options.
    LocalSteps(ProcessGroup& group, std::vector<Buffer> parameters, OuterOptions options = {});
    ~LocalSteps();
    /// Leaves the other one unusable.
    LocalSteps(LocalSteps&&) noexcept;

    /// Counts an inner step: call it after each. Sends or applies what is due, and returns whether it has synchronised
    /// a fragment. Throws as a collective does; the parameters are those of this rank then, and restore() is possible.
    bool step();
    /// Sets all parameters to their values after their last synchronisation, on this rank. Waits for an exchange in
    /// flight, and forgets it, also if it fails. Every rank calls it after the same step.
    void restore();
    /// Returns θ, v and the number of steps, for a Checkpointer. The memory lives as long as this object. Throws
    /// Error{InvalidArgument} while an exchange is in flight: save after a step() that has returned true. The
    /// parameters are not in it, and differ between ranks with several fragments or keep_local: call restore() before
    /// you save them as whole tensors. The names begin with `prefix` and a dot, or with neither if it is empty: pass
    /// one of its own for each of several objects in a checkpoint.
    [[nodiscard]] std::vector<NamedBuffer> state(std::string_view prefix = "local_steps");

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp

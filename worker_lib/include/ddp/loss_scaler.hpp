#pragma once
// LossScaler: keeps gradients in f16 away from zero and from infinity.
//
//     loss *= scaler.scale();                                        // and so all gradients
//     …backward, model.finish_backward()…
//     if (const auto factor = scaler.step(model.clip(max_norm * scaler.scale())))
//         update(…gradient · *factor…);                              // else the step is left out, on all ranks

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/checkpoint_state.hpp"
#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// Options of a LossScaler. The same on every rank. The defaults are those of PyTorch's GradScaler.
struct LossScalerOptions {
    double scale = 65536;                  ///< the initial scale
    double growth = 2;                     ///< by which the scale is multiplied after `growth_interval` good steps
    double backoff = 0.5;                  ///< by which it is multiplied after gradients that are not finite
    std::uint64_t growth_interval = 2000;  ///< good steps in a row
};

/// Chooses the factor of the loss. Most gradients of a model in f16 are too small for the type without one: multiplied,
/// they fit, and an overflow shows that the factor is too large. bf16 and f32 need none.
///
/// Its decisions depend on the norm alone, which ShardedParameters::clip() returns on all ranks alike. So no rank has
/// to ask the others, and all leave out the same steps. One thread at a time.
class LossScaler {
public:
    /// Throws Error{InvalidArgument} for a scale that is not positive, a growth of less than 1, a backoff that is not
    /// between 0 and 1, and an interval of 0.
    explicit LossScaler(LossScalerOptions options = {});

    /// Returns the factor for the loss of the next step. At least 1, unless LossScalerOptions::scale is less.
    [[nodiscard]] double scale() const { return state_[0]; }
    /// Ends a step with the norm of its gradients, which are scaled. Returns the factor by which the optimiser has to
    /// multiply them, 1 / scale(). If the norm is not finite, it returns nothing: leave out the update, and do not
    /// count the step for AdamW. Changes scale() for the next step.
    [[nodiscard]] std::optional<double> step(double norm);
    /// Returns the scale and the number of good steps, for a Checkpointer: ddp::concat() adds them to
    /// ShardedParameters::state(). The memory is that of this object.
    [[nodiscard]] std::vector<NamedShard> state();

private:
    LossScalerOptions options_;
    std::array<double, 2> state_;  ///< the scale, and good steps in a row
};

}  // namespace ddp

#pragma once
// Averaging: the rule by which the sum of a bucket becomes an average. Pure. BucketExchange owns it.

#include "ddp/reducer.hpp"

namespace ddp::detail {

/// Chooses the reduction of a bucket, and the factors before and after it. A hook, and a reduction by Avg, divide by
/// all ranks of the group. If the divisor is another one (Join), the factor afterwards corrects that.
class Averaging {
public:
    Averaging(Average how, bool has_hook, int ranks) : how_(how), has_hook_(has_hook), ranks_(ranks), divisor_(ranks) {}

    /// Divides sums by `ranks` from the next backward on. Must not be called during a backward.
    void divide_by(int ranks) { divisor_ = ranks; }
    /// Returns the reduction for a bucket without a hook.
    [[nodiscard]] ReduceOp op() const;
    [[nodiscard]] double factor_before() const;
    [[nodiscard]] double factor_after() const;

private:
    const Average how_;
    const bool has_hook_;
    const int ranks_;
    int divisor_;
};

}  // namespace ddp::detail

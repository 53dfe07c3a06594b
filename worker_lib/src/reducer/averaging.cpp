#include "worker_lib/src/reducer/averaging.hpp"

#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {

ReduceOp Averaging::op() const {
    return how_ == Average::Auto || how_ == Average::InReduce ? ReduceOp::Avg : ReduceOp::Sum;
}

double Averaging::factor_before() const {
    const ScopedFloatEnvironment floats;
    return how_ == Average::Pre ? 1.0 / divisor_ : 1.0;
}

double Averaging::factor_after() const {
    const ScopedFloatEnvironment floats;
    if (has_hook_ || op() == ReduceOp::Avg) return static_cast<double>(ranks_) / divisor_;
    return how_ == Average::Post ? 1.0 / divisor_ : 1.0;
}

}  // namespace ddp::detail

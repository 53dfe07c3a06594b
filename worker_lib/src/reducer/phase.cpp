#include "worker_lib/src/reducer/phase.hpp"

#include "ddp/error.hpp"

namespace ddp::detail {

void ReducerPhase::fail(std::string text) {
    phase_ = Phase::kFailed;
    failure_ = std::move(text);
}

void ReducerPhase::throw_failure() {
    if (const auto failure = std::exchange(unreported_, nullptr)) std::rethrow_exception(failure);
    throw Error(ErrorCode::Aborted, "this GradientReducer failed earlier: " + failure_);
}

}  // namespace ddp::detail

#pragma once
// ReducerPhase: the state of a reducer, which is idle, in a backward, or failed. The reducer's mutex guards it.

#include <exception>
#include <string>
#include <utility>

#include "ddp/error.hpp"

namespace ddp::detail {

class ReducerPhase {
public:
    void begin(bool sync) { phase_ = sync ? Phase::kSyncing : Phase::kAccumulating; }
    void end() { phase_ = Phase::kIdle; }
    /// Ends the reducer for good. `text` is part of the error of every later call.
    void fail(std::string text) {
        phase_ = Phase::kFailed;
        failure_ = std::move(text);
    }
    /// Keeps the failure itself for the next call, if no call has thrown it yet.
    void keep_unreported(std::exception_ptr failure) { unreported_ = std::move(failure); }

    [[nodiscard]] bool is_idle() const { return phase_ == Phase::kIdle; }
    [[nodiscard]] bool is_syncing() const { return phase_ == Phase::kSyncing; }
    [[nodiscard]] bool in_backward() const { return phase_ == Phase::kSyncing || phase_ == Phase::kAccumulating; }
    [[nodiscard]] bool has_failed() const { return phase_ == Phase::kFailed; }

    /// Throws after a failure: an unreported one as it was, once, and Error{Aborted} with its text from then on.
    void refuse_if_failed() {
        if (has_failed()) throw_failure();
    }

private:
    [[noreturn]] void throw_failure() {
        if (const auto failure = std::exchange(unreported_, nullptr)) std::rethrow_exception(failure);
        throw Error(ErrorCode::Aborted, "this GradientReducer failed earlier: " + failure_);
    }

    enum class Phase { kIdle, kSyncing, kAccumulating, kFailed };

    Phase phase_ = Phase::kIdle;
    std::string failure_;
    std::exception_ptr unreported_;
};

}  // namespace ddp::detail

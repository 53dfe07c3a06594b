#pragma once
// Failure: why a group, or one of its operations, cannot go on, as the parts of a backend hand it to each other and as
// ranks report it to other ranks. Its text is made at the edge, by to_error(). Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/error.hpp"

namespace ddp::detail {

enum class FailureKind : std::int32_t {
    kOwn,       ///< this rank found it
    kRelayed,   ///< another rank found it and reported it
    kPeerLost,  ///< a rank is gone; the text needs no reporter
};

struct Failure {
    FailureKind kind = FailureKind::kOwn;
    ErrorCode code = ErrorCode::System;
    std::string reporter = {};   ///< kRelayed: the name of the rank that found it, "rank 3 (host b, pid 9)"
    std::string operation = {};  ///< the one that a rank cannot finish because of `cause`; empty: none in particular
    std::string cause = {};      ///< a clause without the group, the reporter and the rank that cannot finish
    std::vector<int> culprits = {};
    bool names_group = false;  ///< the cause names the group itself, or concerns none: nothing goes before it

    [[nodiscard]] bool operator==(const Failure&) const = default;
};

/// Returns the failure as other ranks see it: reported by `reporter`, unless another rank has reported it before or it
/// needs no reporter.
[[nodiscard]] Failure reported_by(std::string_view reporter, Failure failure);

/// Returns the failure of this rank, which cannot finish `operation` because of `cause`. Replaces the operation of a
/// failure that this rank met in another one.
[[nodiscard]] Failure met_in(std::string operation, Failure cause);

/// Returns the error that `self` throws, or ends an operation with: "group 'world': rank 0 cannot finish #6 barrier:
/// rank 3 (host b, pid 9) reported: CAUSE". Leaves out what the failure does not have.
/// self   as name_self()
[[nodiscard]] Error to_error(const Failure& failure, std::string_view group, std::string_view self);

/// What parts of a backend throw to each other: to_error() with the failure itself.
class FailureError : public Error {
public:
    FailureError(Failure failure, std::string_view group, std::string_view self);

    [[nodiscard]] const Failure& failure() const { return failure_; }

private:
    Failure failure_;
};

/// Returns the failure of a FailureError. Any other error is one that this rank found, with its text as the cause.
[[nodiscard]] Failure failure_of(const Error& error);

}  // namespace ddp::detail

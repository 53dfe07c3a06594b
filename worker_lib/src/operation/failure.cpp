#include "worker_lib/src/operation/failure.hpp"

#include <fmt/format.h>

#include <utility>

namespace ddp::detail {

Failure reported_by(std::string_view reporter, Failure failure) {
    failure.operation.clear();  // it is the reporter's
    if (failure.kind != FailureKind::kOwn) return failure;
    failure.kind = FailureKind::kRelayed;
    failure.reporter = reporter;
    return failure;
}

Failure met_in(std::string operation, Failure cause) {
    if (cause.kind == FailureKind::kPeerLost) cause.kind = FailureKind::kOwn;
    cause.operation = std::move(operation);
    return cause;
}

Error to_error(const Failure& failure, std::string_view group, std::string_view self) {
    const bool in_operation = !failure.operation.empty();
    std::string text;
    if (in_operation || !failure.names_group) text += fmt::format("group '{}': ", group);
    if (in_operation) text += fmt::format("{} cannot finish {}: ", self, failure.operation);
    if (failure.kind == FailureKind::kRelayed) text += fmt::format("{} reported: ", failure.reporter);
    Error error(failure.code, text + failure.cause, failure.culprits);
    return failure.kind == FailureKind::kOwn ? error : error.reported();
}

FailureError::FailureError(Failure failure, std::string_view group, std::string_view self)
    : Error(to_error(failure, group, self)), failure_(std::move(failure)) {}

Failure failure_of(const Error& error) {
    if (const auto* const ours = dynamic_cast<const FailureError*>(&error)) return ours->failure();
    return {.code = error.code(), .cause = error.what(), .culprits = error.culprits(), .names_group = true};
}

}  // namespace ddp::detail

#include "worker_lib/src/native/backend/group_failure.hpp"

#include <fmt/format.h>

namespace ddp::detail {

void GroupFailure::report(const Failure& failure, std::uint64_t after) {
    peers_.node().failure.poison(failure, after);
    if (Links* const links = peers_.links()) links->interrupt();
    queue_.report_failure();
}

void GroupFailure::report_out_of_memory() {
    report({.code = ErrorCode::System, .cause = fmt::format("{} is out of memory", peers_.own_name())});
}

void GroupFailure::stop(const Failure& failure) {
    peers_.node().failure.stop(failure);
    if (Links* const links = peers_.links()) links->interrupt();
    queue_.stop();
}

void GroupFailure::abort(std::string_view reason) {
    end_all({.code = ErrorCode::Aborted,
             .cause = fmt::format("group '{}' was aborted by {}: {}", peers_.group(), peers_.own_name(), reason),
             .culprits = {peers_.rank()},
             .names_group = true});
}

void GroupFailure::fail(const Error& error) {
    end_all({.code = error.code(), .cause = error.what(), .culprits = error.culprits(), .names_group = true});
}

void GroupFailure::end_all(const Failure& failure) {
    // Without an earlier failure everything ends; after one, only the operations that this rank has not completed.
    report(failure, peers_.node().failure.poisoned() ? peers_.node().progress.last_done() : 0);
    p2p_.interrupt();
}

void GroupFailure::abort_for(const WorkState& work, std::string_view text) {
    if (peers_.failure()) return;
    work.note_abort(text);
    abort(text);
}

}  // namespace ddp::detail

#include "worker_lib/src/native/backend/group_failure.hpp"

#include <fmt/format.h>

namespace ddp::detail {

void GroupFailure::report(const Error& failure, std::uint64_t after) {
    peers_.node().failure.poison(failure, after);
    if (Links* const links = peers_.links()) links->interrupt();
    queue_.report_failure();
}

void GroupFailure::report_out_of_memory() {
    report(Error(ErrorCode::System, fmt::format("group '{}': {} is out of memory", peers_.group(), peers_.own_name())));
}

void GroupFailure::stop(const Error& failure) {
    peers_.node().failure.stop(failure);
    if (Links* const links = peers_.links()) links->interrupt();
    queue_.stop();
}

void GroupFailure::abort(std::string_view reason) {
    const Error failure(ErrorCode::Aborted,
                        fmt::format("group '{}' was aborted by {}: {}", peers_.group(), peers_.own_name(), reason),
                        {peers_.rank()});
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

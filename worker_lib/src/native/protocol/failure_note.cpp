#include "worker_lib/src/native/protocol/failure_note.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/text/cut.hpp"

namespace ddp::detail {

namespace {

template <std::size_t Size>
std::string text_of(const std::array<char, Size>& from) {
    return {from.data(), ::strnlen(from.data(), Size)};
}

}  // namespace

FailureNote make_note(const Failure& failure) {
    FailureNote note;
    note.kind = static_cast<std::int32_t>(failure.kind);
    note.code = static_cast<std::int32_t>(failure.code);
    note.names_group = failure.names_group ? 1 : 0;
    note.culprit_count = static_cast<std::int32_t>(std::min(failure.culprits.size(), note.culprits.size()));
    std::copy_n(failure.culprits.begin(), note.culprit_count, note.culprits.begin());
    ddprun::copy_cut(note.reporter, failure.reporter);
    ddprun::copy_cut(note.operation, failure.operation);
    ddprun::copy_cut(note.cause, failure.cause);
    return note;
}

Failure read_note(const FailureNote& note, int group_size) {
    Failure failure;
    const bool known_kind = note.kind >= 0 && note.kind <= static_cast<std::int32_t>(FailureKind::kPeerLost);
    if (known_kind) failure.kind = static_cast<FailureKind>(note.kind);
    const bool known_code = note.code >= 0 && note.code <= static_cast<std::int32_t>(ErrorCode::System);
    if (known_code) failure.code = static_cast<ErrorCode>(note.code);
    failure.names_group = note.names_group != 0;
    const auto count = std::clamp<std::int32_t>(note.culprit_count, 0, static_cast<std::int32_t>(note.culprits.size()));
    failure.culprits.assign(note.culprits.begin(), note.culprits.begin() + count);
    std::erase_if(failure.culprits, [=](int rank) { return rank < 0 || rank >= group_size; });
    failure.operation = text_of(note.operation);
    failure.cause = text_of(note.cause);
    if (failure.kind == FailureKind::kRelayed) failure.reporter = text_of(note.reporter);
    if (failure.kind == FailureKind::kRelayed && failure.reporter.empty()) failure.kind = FailureKind::kOwn;
    return failure;
}

}  // namespace ddp::detail

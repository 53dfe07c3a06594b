#include "worker_lib/src/native/protocol/failure_note.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/group/departure.hpp"

namespace ddp::detail {

FailureNote make_note(const Error& failure, Wording wording) {
    FailureNote note;
    note.code = static_cast<std::int32_t>(failure.code());
    note.complete = wording == Wording::kComplete ? 1 : 0;
    const auto& culprits = failure.culprits();
    note.culprit_count = static_cast<std::int32_t>(std::min(culprits.size(), note.culprits.size()));
    std::copy_n(culprits.begin(), note.culprit_count, note.culprits.begin());
    const std::string_view text = failure.what();
    text.copy(note.text.data(), note.text.size() - 1);
    return note;
}

Error reported_by(std::string_view name, const Error& failure) {
    return {failure.code(), fmt::format("{} reported: {}", name, without_reader(failure.what())), failure.culprits()};
}

Error read_note(const FailureNote& note) {
    // It may come over the network, so nothing in it is trusted.
    const auto count = std::clamp<std::int32_t>(note.culprit_count, 0, static_cast<std::int32_t>(note.culprits.size()));
    const bool known = note.code >= 0 && note.code <= static_cast<std::int32_t>(ErrorCode::System);
    return {known ? static_cast<ErrorCode>(note.code) : ErrorCode::System,
            std::string(note.text.data(), ::strnlen(note.text.data(), note.text.size())),
            std::vector<int>(note.culprits.begin(), note.culprits.begin() + count)};
}

}  // namespace ddp::detail

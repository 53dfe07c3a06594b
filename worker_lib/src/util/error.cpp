#include "worker_lib/src/util/error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "common/text/escape.hpp"

namespace ddp {

/// Escapes control characters: the text contains names, tags and reasons of the program and of peers.
Error::Error(ErrorCode code, const std::string& text, std::vector<int> culprits)
    : Error(std::runtime_error(ddprun::escape_controls(text)), {.code = code, .culprits = std::move(culprits)}) {}

Error::Error(const std::runtime_error& text, Details details)
    : std::runtime_error(text), details_(std::make_shared<const Details>(std::move(details))) {}

Error Error::in(std::string group, std::string operation, std::uint64_t seq) const {
    Details details = *details_;
    details.group = std::move(group);
    details.operation = std::move(operation);
    details.seq = seq;
    return {*this, std::move(details)};
}

Error Error::reported() const {
    Details details = *details_;
    details.reported = true;
    return {*this, std::move(details)};
}

Error Error::reworded(const std::string& text) const {
    const Error error(details_->code, text, details_->culprits);
    return details_->reported ? error.reported() : error;
}

std::string_view to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::InvalidArgument: return "InvalidArgument";
        case ErrorCode::Environment: return "Environment";
        case ErrorCode::Mismatch: return "Mismatch";
        case ErrorCode::Timeout: return "Timeout";
        case ErrorCode::PeerLost: return "PeerLost";
        case ErrorCode::Aborted: return "Aborted";
        case ErrorCode::Unavailable: return "Unavailable";
        case ErrorCode::Io: return "Io";
        case ErrorCode::System: return "System";
        case ErrorCode::Superseded: return "Superseded";
    }
    return "unknown";
}

void detail::throw_errno(std::string_view what, int errno_value, std::string_view advice) {
    if (errno_value == EMFILE)
        throw Error(ErrorCode::System,
                    fmt::format("{}: this process has too many open files. Raise `ulimit -n`", what));
    if (errno_value == ENFILE)
        throw Error(ErrorCode::System,
                    fmt::format("{}: this machine has too many open files. Raise the sysctl fs.file-max", what));
    const std::string text = ddprun::system_error(what, errno_value).message;
    throw Error(ErrorCode::System, advice.empty() ? text : fmt::format("{}. {}", text, advice));
}

}  // namespace ddp

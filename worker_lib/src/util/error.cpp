#include "worker_lib/src/util/error.hpp"

#include <fmt/format.h>

#include <cerrno>

#include "common/text/escape.hpp"

namespace ddp {

/// Escapes control characters: the text contains names, tags and reasons of the program and of peers.
Error::Error(ErrorCode code, const std::string& text, std::vector<int> culprits)
    : std::runtime_error(ddprun::escape_controls(text)), code_(code), culprits_(std::move(culprits)) {}

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

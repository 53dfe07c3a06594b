#pragma once
// Failed system calls as ddp::Error.

#include <string>
#include <string_view>

#include "common/error.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {

/// Throws Error{System}: "<what>: <the system's text>".
[[noreturn]] inline void throw_errno(std::string_view what, int errno_value) {
    throw Error(ErrorCode::System, ddprun::system_error(what, errno_value).message);
}

}  // namespace ddp::detail

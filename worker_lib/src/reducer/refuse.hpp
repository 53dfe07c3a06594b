#pragma once
// refuse(): rejects a call of a reducer.

#include <string>

#include "ddp/error.hpp"

namespace ddp::detail {

[[noreturn]] inline void refuse(const std::string& text) { throw Error(ErrorCode::InvalidArgument, text); }

}  // namespace ddp::detail

#pragma once
// Conversions between ddp::Error and other errors: failed system calls as Error, and the text of any exception.

#include <exception>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {

/// Throws Error{System}: "<what>: <the system's text>. <advice>". If too many files are open, throws
/// "<what>: this process has too many open files. Raise `ulimit -n`", or the same for the machine.
[[noreturn]] void throw_errno(std::string_view what, int errno_value, std::string_view advice = {});

/// Returns the text of the exception that is being handled: programs may throw anything.
[[nodiscard]] inline std::string caught() {
    try {
        throw;
    } catch (const std::exception& error) {
        return error.what();
    } catch (...) {
        return "an exception that is not derived from std::exception";
    }
}

}  // namespace ddp::detail

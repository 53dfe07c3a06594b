#pragma once
// Error: a code to branch on and a sentence to read. Result<T>: a T, or the Error that took its place.
// A message says what, where, why and what to do next; context is added once, where it is known.

#include <boost/system/result.hpp>

#include <string>
#include <string_view>
#include <utility>

#include "common/errc.hpp"

namespace ddprun {

struct Error {
    boost::system::error_code code;
    std::string message;
};

template <typename T>
using Result = boost::system::result<T, Error>;

/// "cannot open /x/y: No such file or directory": `what`, then the system's text for `errno_value`.
[[nodiscard]] Error system_error(std::string_view what, int errno_value);

/// The same error with `context` and ": " before its message.
[[nodiscard]] Error with_context(std::string_view context, Error error);

/// What Result<T>::value() throws. Only main() and the public edge of worker_lib let it out.
class ErrorException : public std::exception {
public:
    explicit ErrorException(Error error) : error_(std::move(error)) {}
    const char* what() const noexcept override { return error_.message.c_str(); }
    const Error& error() const noexcept { return error_; }

private:
    Error error_;
};

/// Found by argument-dependent lookup when value() is called on a Result that holds an Error.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location&);

}  // namespace ddprun

#pragma once
// Error: a code to branch on and a sentence to read. Result<T>: a T or an Error.
// A message says what failed, where, why and what to do; context is added once, where it is known.

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

/// Returns an error such as "cannot open /x/y: No such file or directory": `what`, then the text for `errno_value`.
[[nodiscard]] Error system_error(std::string_view what, int errno_value);

/// Returns `error` with `context` and ": " before its message.
[[nodiscard]] Error with_context(std::string_view context, Error error);

/// ErrorException is thrown by Result<T>::value(). main(), or the public interface of worker_lib, catches it.
class ErrorException : public std::exception {
public:
    explicit ErrorException(Error error) : error_(std::move(error)) {}
    const char* what() const noexcept override { return error_.message.c_str(); }
    const Error& error() const noexcept { return error_; }

private:
    Error error_;
};

/// Throws ErrorException. Boost finds it by argument-dependent lookup when value() is called on a Result with an Error.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location&);

}  // namespace ddprun

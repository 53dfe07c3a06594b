#pragma once
// The reasons for which ddprun refuses or gives up, as error codes that callers and tests branch on.
// The words that people read are in Error::message; these codes only say of which kind it is.

#include <boost/system/error_code.hpp>

namespace ddprun {

enum class Errc {
    kUsage = 1,     ///< the caller's input is wrong: options, environment, a file that was named
    kMalformed,     ///< bytes that do not follow the protocol or file format
    kLimit,         ///< larger than a named limit
    kMismatch,      ///< both sides are well-formed but disagree (job, version, generation)
    kTimeout,       ///< a deadline passed
    kUnreachable,   ///< nobody listens there, or no route
    kClosed,        ///< the peer ended the connection
    kNotFound,      ///< no such key, file or program
    kInUse,         ///< the address or name is taken
    kRefused,       ///< the peer answered no
    kSystem,        ///< the operating system failed a call that should have worked
};

const boost::system::error_category& ddprun_category() noexcept;

inline boost::system::error_code make_error_code(Errc e) noexcept {
    return {static_cast<int>(e), ddprun_category()};
}

}  // namespace ddprun

template <>
struct boost::system::is_error_code_enum<ddprun::Errc> : std::true_type {};

#pragma once
// Errc: the kinds of failure, as error codes that callers and tests branch on. Error::message has the user's text.

#include <boost/system/error_code.hpp>

namespace ddprun {

enum class Errc {
    kUsage = 1,    ///< the caller's input is wrong: options, environment, a file that was named
    kMalformed,    ///< bytes that do not follow the protocol or file format
    kLimit,        ///< larger than a named limit
    kMismatch,     ///< both sides are well-formed but disagree (job, version, generation)
    kTimeout,      ///< a deadline passed
    kUnreachable,  ///< no process listens there, or there is no route
    kClosed,       ///< the peer ended the connection
    kNotFound,     ///< no such key, file or program
    kInUse,        ///< the address or name is taken
    kRefused,      ///< the peer or the system denied it
    kSystem,       ///< the operating system failed a call that should have worked
    kUntrusted,    ///< the peer has not shown the job's key, or one end alone uses TLS
};

const boost::system::error_category& ddprun_category() noexcept;

inline boost::system::error_code make_error_code(Errc e) noexcept { return {static_cast<int>(e), ddprun_category()}; }

}  // namespace ddprun

template <>
struct boost::system::is_error_code_enum<ddprun::Errc> : std::true_type {};

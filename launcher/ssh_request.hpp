#pragma once
// What --hosts sends to each host through the stdin of ssh, so that no secret is in a command line: the directory, the
// arguments and the variables of the ddprun there. Afterwards each byte is the number of a signal, and end-of-file ends
// that ddprun. Its stdout has two marks of ours among the lines of the job.

#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "common/system/environment.hpp"

namespace ddprun::launcher {

inline constexpr std::string_view kStartedMark =
    "\x01"
    "ddprun started\n";
inline constexpr std::string_view kEndedMark =
    "\x01"
    "ddprun ended ";  ///< then its exit code and the end of the line

struct SshRequest {
    std::string directory;
    std::vector<std::string> arguments;  ///< without argv[0]
    Environment environment;
    friend bool operator==(const SshRequest&, const SshRequest&) = default;
};

/// Returns the request as it is sent.
[[nodiscard]] std::string encode(const SshRequest& request);
/// Reads a request from a descriptor; blocks until all of it is there. Errors: kClosed, kMalformed, kLimit.
[[nodiscard]] Result<SshRequest> read_ssh_request(int fd);

/// Returns the variables that ddprun on another host gets: all but those that describe this host or this login.
[[nodiscard]] Environment variables_for_hosts(Environment environment);

}  // namespace ddprun::launcher

#pragma once
// What ddprund does around its start in either mode: the log file, and word to whoever waits until it listens.

#include <string>
#include <string_view>

#include "common/unique_fd.hpp"

namespace ddprun::daemon {

/// Appends the log to `path` as well. False, with a line in the log, when that file cannot be written.
[[nodiscard]] bool log_to_file(const std::string& path);

/// Writes `line` to the descriptor of --ready-fd; a reader that is gone is a warning.
void say_ready(UniqueFd fd, std::string_view line);

/// Tells the service manager ("READY=1", "STOPPING=1") as systemd's sd_notify(3) describes: one datagram to the Unix
/// socket in $NOTIFY_SOCKET, a path or, with '@' in front, an abstract name. Nothing happens without that variable; a
/// socket that does not take it is a warning.
void notify_service_manager(std::string_view state);

}  // namespace ddprun::daemon

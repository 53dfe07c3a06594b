#pragma once
// Starts ddprund in either mode: prepares the process, opens the log file, and reports that the program listens.

#include <string>
#include <string_view>

#include "common/system/unique_fd.hpp"

namespace ddprun::daemon {

/// Makes writes to a closed connection fail instead of killing the process, allows as many descriptors as the system
/// does, and forbids core files, which would hold the job's secrets, and new privileges. Called once, from main's
/// thread, before anything is opened.
void prepare_process();

/// Appends the log to `path` as well. Returns false, with a line in the log, if that file cannot be written.
[[nodiscard]] bool log_to_file(const std::string& path);

/// Writes `line` to the descriptor of --ready-fd. Logs a warning if its reader has closed it.
void report_ready(UniqueFd fd, std::string_view line);

/// Reports a state ("READY=1", "STOPPING=1") to the service manager as systemd's sd_notify(3) describes: one datagram
/// to the Unix socket in $NOTIFY_SOCKET, a path or, with '@' in front, an abstract name. Does nothing without that
/// variable; logs a warning if the socket does not take it.
void notify_service_manager(std::string_view state);

}  // namespace ddprun::daemon

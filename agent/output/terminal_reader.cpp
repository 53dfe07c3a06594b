#include "agent/output/terminal_reader.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "common/system/files.hpp"
#include "common/system/process_state.hpp"

namespace ddprun::agent {
namespace {

/// Returns whether the terminal passes on whole lines and shows the Enter at their end. It does not while a program
/// edits the line itself (readline).
bool echoes_lines() {
    termios modes{};
    return ::tcgetattr(STDIN_FILENO, &modes) == 0 && (modes.c_lflag & ICANON) != 0 &&
           (modes.c_lflag & (ECHO | ECHONL)) != 0;
}

bool has_our_stdin(pid_t pid) {
    struct stat ours {};
    struct stat its {};
    return ::fstat(STDIN_FILENO, &ours) == 0 && ::stat(fmt::format("/proc/{}/fd/0", pid).c_str(), &its) == 0 &&
           S_ISCHR(its.st_mode) && ours.st_rdev == its.st_rdev;
}

/// Returns whether a process, or one below it, is in read(2) from our stdin.
bool reads_stdin(pid_t pid) {
    const std::string call = content_of(fmt::format("/proc/{}/syscall", pid));
    if (call.starts_with(fmt::format("{} 0x0 ", SYS_read)) && has_our_stdin(pid)) return true;
    std::istringstream children(content_of(fmt::format("/proc/{0}/task/{0}/children", pid)));
    for (pid_t child = 0; children >> child;) {
        if (reads_stdin(child)) return true;
    }
    return false;
}

}  // namespace

TerminalRead terminal_read(pid_t pid) {
    if (echoes_lines() && reads_stdin(pid)) return TerminalRead::kWaiting;
    return process_state(pid) == ProcessState::kEnded ? TerminalRead::kEnded : TerminalRead::kNone;
}

}  // namespace ddprun::agent

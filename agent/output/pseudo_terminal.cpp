#include "agent/output/pseudo_terminal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "common/text/utf8.hpp"

namespace ddprun::agent {
namespace {

/// A progress bar in fewer columns shows nothing; beside a longer label its lines are broken by the terminal.
constexpr int kMinColumns = 20;

int columns_of(std::string_view text) {
    int columns = 0;
    for (; !text.empty(); ++columns) text.remove_prefix(std::max<std::size_t>(1, character_bytes(text)));
    return columns;
}

Error failure(int errno_value) {
    Error error = system_error("cannot make a pseudo terminal", errno_value);
    switch (errno_value) {
        case ENOSPC:
            error.message += ". All of the machine or container are in use: raise the sysctl kernel.pty.max";
            break;
        case EMFILE: error.message += ". Raise `ulimit -n`"; break;
        default: error.message += ". Is devpts mounted at /dev/pts? Mount it"; break;
    }
    error.message += ", or leave --pty out";
    return error;
}

/// Makes "\n" stay "\n": the console's own terminal makes "\r\n" of it.
bool pass_on_unchanged(int terminal) {
    termios modes{};
    if (::tcgetattr(terminal, &modes) != 0) return false;
    modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    return ::tcsetattr(terminal, TCSANOW, &modes) == 0;
}

}  // namespace

winsize room_behind(std::string_view label, winsize terminal) {
    const int columns = terminal.ws_col;
    if (columns == 0) return terminal;
    terminal.ws_col =
        static_cast<unsigned short>(std::max(columns - columns_of(label), std::min(columns, kMinColumns)));
    return terminal;
}

Result<PseudoTerminal> make_pseudo_terminal(winsize size) {
    UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0) return failure(errno);
    // By the master and not by a path: /dev/pts may be that of another container. The agent leads a session, in which
    // the terminal of an open without O_NOCTTY would become the controlling one of all workers.
    UniqueFd worker_end(::ioctl(master.get(), TIOCGPTPEER, O_WRONLY | O_NOCTTY | O_CLOEXEC));
    if (!worker_end || !pass_on_unchanged(worker_end.get())) return failure(errno);
    resize(master.get(), size);
    return PseudoTerminal{std::move(master), std::move(worker_end)};
}

bool resize(int read_end, winsize size) {
    winsize before{};
    if (::ioctl(read_end, TIOCGWINSZ, &before) != 0) return false;
    if (before.ws_col == size.ws_col && before.ws_row == size.ws_row) return false;
    return ::ioctl(read_end, TIOCSWINSZ, &size) == 0;
}

}  // namespace ddprun::agent

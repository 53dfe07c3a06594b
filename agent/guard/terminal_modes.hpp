#pragma once
// Keeps the modes of the terminal over a job whose workers may be killed while they edit a line or read a password.
// Used by the guard; allocates nothing.

#include <termios.h>
#include <unistd.h>

namespace ddprun::agent {

/// The modes that the terminal of stdin had when this object was made.
class TerminalModes {
public:
    /// In the background the modes are those of another program, such as the shell that reads a line.
    TerminalModes() noexcept : known_(is_in_foreground() && ::tcgetattr(STDIN_FILENO, &modes_) == 0) {}

    /// Gives the terminal these modes again, if this process's job is in its foreground.
    void restore() const noexcept {
        if (known_ && is_in_foreground()) ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
    }

private:
    static bool is_in_foreground() noexcept { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

    termios modes_{};
    bool known_;
};

}  // namespace ddprun::agent

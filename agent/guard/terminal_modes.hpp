#pragma once
// Keeps the modes of the terminal over a job whose workers may be killed while they edit a line or read a password.
// Used by the guard; allocates nothing.

#include <termios.h>
#include <unistd.h>

namespace ddprun::agent {

/// The modes that the terminal of stdin had when this object was made.
class TerminalModes {
public:
    TerminalModes() noexcept : known_(::tcgetattr(STDIN_FILENO, &modes_) == 0) {}

    /// Gives the terminal these modes again, if this process's job is in its foreground: otherwise they are those of
    /// another program.
    void restore() const noexcept {
        if (known_ && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_);
    }

private:
    termios modes_{};
    bool known_;
};

}  // namespace ddprun::agent

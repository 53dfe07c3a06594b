#pragma once
// An interactive shell on a terminal of its own, for tests of what a user types. For the test's own thread only.

#include <sys/types.h>

#include <string>

#include "common/system/unique_fd.hpp"
#include "tests/e2e/process.hpp"

namespace e2e {

/// Shell: owns bash and its terminal. Lines are typed into it; its output is read whenever shows() waits for a text.
class Shell {
public:
    explicit Shell(const Sandbox& sandbox);
    /// Kills the shell; its jobs are the test's to end.
    ~Shell();
    Shell(const Shell&) = delete;
    Shell& operator=(const Shell&) = delete;

    /// Types `text`, in which \x1a is Ctrl-Z and \x03 is Ctrl-C.
    void type(const std::string& text) const;
    /// Gives the window another size, which the kernel reports to the job in the foreground.
    void resize(int rows, int columns) const;
    /// Waits until the terminal has shown `text` since the last call.
    [[nodiscard]] bool shows(const std::string& text);

private:
    pid_t pid_ = -1;
    ddprun::UniqueFd terminal_;
    std::string shown_;
};

}  // namespace e2e

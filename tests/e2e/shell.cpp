#include "tests/e2e/shell.hpp"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace e2e {

Shell::Shell(const Sandbox& sandbox) {
    int terminal = -1;
    pid_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
        ::setenv("DDPRUN_TEST", sandbox.marker().c_str(), 1);
        ::setenv("TMPDIR", (sandbox.path() / "tmp").c_str(), 1);
        ::setenv("PS1", "prompt> ", 1);
        ::execl("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
        ::_exit(127);
    }
    terminal_ = ddprun::UniqueFd(terminal);
}

Shell::~Shell() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
}

void Shell::type(const std::string& text) const {
    if (::write(terminal_.get(), text.data(), text.size()) <= 0) throw std::runtime_error("the terminal takes nothing");
}

void Shell::resize(int rows, int columns) const {
    const winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
    if (::ioctl(terminal_.get(), TIOCSWINSZ, &size) != 0) throw std::runtime_error("the window keeps its size");
}

bool Shell::shows(const std::string& text) {
    return eventually(Seconds(20), [&] {
        char buffer[4096];
        pollfd readable{terminal_.get(), POLLIN, 0};
        if (::poll(&readable, 1, 0) == 1) {
            const ssize_t size = ::read(terminal_.get(), buffer, sizeof buffer);
            if (size > 0) shown_.append(buffer, static_cast<std::size_t>(size));
        }
        const auto at = shown_.find(text);
        if (at == std::string::npos) return false;
        shown_.erase(0, at + text.size());
        return true;
    });
}

}  // namespace e2e

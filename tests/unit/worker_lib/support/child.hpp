#pragma once
// A child process of a test, which may change its limits and mounts.

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/catch.hpp"

namespace ddp::testing {

/// Runs `body` in a child process and returns the text that it returns.
inline std::string in_child(const std::function<std::string()>& body) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const std::string text = body();
        const auto written = ::write(pipe[1], text.data(), text.size());
        ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(pipe[1]);
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = ::read(pipe[0], piece.data(), piece.size())) > 0;)
        text.append(piece.data(), static_cast<std::size_t>(n));
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    return text;
}

/// Mounts a tmpfs that only this process sees. Returns whether this user may do so.
inline bool mount_tmpfs(const std::filesystem::path& path, const char* options, unsigned long flags = 0) {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", path.c_str(), "tmpfs", flags, options) == 0;
}

}  // namespace ddp::testing

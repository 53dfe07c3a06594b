#pragma once
// For tests with real processes: finds them by a mark in their environment, waits for conditions, reads their output.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/system/exit_status.hpp"
#include "common/system/unique_fd.hpp"

namespace agent_test {

/// Polls every 5 ms; false when `limit` passes first.
[[nodiscard]] bool eventually(const std::function<bool()>& condition,
                              std::chrono::milliseconds limit = std::chrono::seconds(20));

/// A unique value of the variable AGENT_TEST; kills every process that still has it at the end.
class Mark {
public:
    Mark();
    ~Mark();
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

    [[nodiscard]] const std::string& value() const { return value_; }
    [[nodiscard]] std::string assignment() const { return "AGENT_TEST=" + value_; }
    /// Returns the running processes that have it; zombies do not count.
    [[nodiscard]] std::vector<pid_t> processes() const;
    [[nodiscard]] bool none_left() const;

private:
    std::string value_;
};

/// Both ends of a pipe, close-on-exec.
struct Pipe {
    Pipe();
    ddprun::UniqueFd read_end;
    ddprun::UniqueFd write_end;
};

/// Returns the next line without its end; an unfinished one if the other side closes, or after 20 s.
[[nodiscard]] std::string read_line(int fd);
/// Returns everything until end-of-file, or for 20 s.
[[nodiscard]] std::string read_all(int fd);

/// Forks with empty output buffers, so that the child does not write their contents again.
[[nodiscard]] pid_t fork_flushed();

/// Waits for a child; kills it, and returns SIGALRM, if it takes more than 20 s.
[[nodiscard]] ddprun::ExitStatus wait_for(pid_t child);

/// Returns the path of the test worker (shapes.cpp).
[[nodiscard]] std::string shapes();

}  // namespace agent_test

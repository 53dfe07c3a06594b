#pragma once
// For tests with real processes: find them by a mark in their environment, wait for conditions, read what they say.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/exit_status.hpp"
#include "common/unique_fd.hpp"

namespace agent_test {

/// Polls every 5 ms; false when `limit` passes first.
[[nodiscard]] bool eventually(const std::function<bool()>& condition,
                              std::chrono::milliseconds limit = std::chrono::seconds(20));

/// A value of the variable AGENT_TEST that nobody else carries; kills whoever still carries it at the end.
class Mark {
public:
    Mark();
    ~Mark();
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

    [[nodiscard]] const std::string& value() const { return value_; }
    [[nodiscard]] std::string assignment() const { return "AGENT_TEST=" + value_; }
    /// Living processes that carry it; zombies do not count.
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

/// The next line, without its end; what there is when the other side closes, or after 20 s.
[[nodiscard]] std::string read_line(int fd);
/// Everything until end-of-file, or for 20 s.
[[nodiscard]] std::string read_all(int fd);

/// fork(2) with nothing in our output buffers that the child would write as well.
[[nodiscard]] pid_t fork_flushed();

/// Waits for a child of ours; kills it, and says SIGALRM, when it takes more than 20 s.
[[nodiscard]] ddprun::ExitStatus wait_for(pid_t child);

/// The test worker (shapes.cpp).
[[nodiscard]] std::string shapes();

}  // namespace agent_test

#pragma once
// ChildProcess: one process that we started, leader of a process group of its own, which it owns as a whole. One
// thread; start from the main thread, because the parent-death signal follows the thread that forked.

#include <sys/types.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "common/exit_status.hpp"

namespace ddprun::agent {

struct ChildSpec {
    std::vector<std::string> argv;         ///< argv[0] is the path to execute; PATH is not searched
    std::vector<std::string> environment;  ///< "NAME=value", complete: nothing is inherited
    int stdout_fd = 1;                     ///< becomes the child's 1; stays the caller's to close
    int stderr_fd = 2;
    int inherited_fd = -1;  ///< one more that the child gets, by the number that it has here; -1: none
};

/// Why this node cannot start a worker although nothing is wrong with the program: `what`, the errno, what to do about
/// it. Errc::kLimit when something ran out, Errc::kSystem for what should never fail.
[[nodiscard]] Error start_error(std::string_view what, int errno_value);

class ChildProcess {
public:
    /// Starts `spec` in its own process group, to be killed when this thread ends, with default signal handling, the
    /// caller's stdin and no other descriptors than those of `spec`. Returns after the exec. Errors: the errno of exec,
    /// with the path; start_error() for all that comes before the exec. No process is left then.
    [[nodiscard]] static Result<ChildProcess> start(boost::asio::io_context& io, const ChildSpec& spec);

    /// Kills what is left of the group with SIGKILL and reaps.
    ~ChildProcess();
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }

    /// Calls `ended` once, from the io_context, when the process has ended. It may still have no status() then: while
    /// somebody traces it (gdb, strace, its own leak checker) the kernel shows us its end only when the tracer has seen
    /// it or is gone, and sends a SIGCHLD at that time.
    void async_wait(std::function<void()> ended);

    /// How it ended; empty while it runs, or while its tracer withholds the end. It stays a zombie until reap(), so
    /// that its pid and its group's number cannot pass to a stranger and signal_group keeps reaching the group's other
    /// members.
    [[nodiscard]] std::optional<ExitStatus> status() const;

    void signal(int number) const;        ///< the process alone
    void signal_group(int number) const;  ///< every process of its group

    /// Waits for the end and gives the pid back. Nothing may be called afterwards but the destructor.
    ExitStatus reap();
    /// Lets go of a process that not even SIGKILL ends (it sleeps in the kernel): whoever is our parent will inherit
    /// it.
    void abandon() { pid_ = -1; }

private:
    ChildProcess(boost::asio::io_context& io, pid_t pid, int pidfd);

    pid_t pid_ = -1;                               ///< -1 when reaped or moved from
    boost::asio::posix::stream_descriptor pidfd_;  ///< readable when the process has ended
};

}  // namespace ddprun::agent

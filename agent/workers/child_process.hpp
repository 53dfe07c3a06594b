#pragma once
// ChildProcess: owns a child process of this process, and the process group that the child leads. Used by Worker. One
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
#include "common/system/cpu_set.hpp"
#include "common/system/exit_status.hpp"

namespace ddprun::agent {

/// The program of a child process, and all that the child inherits.
struct ChildSpec {
    std::vector<std::string> argv;         ///< argv[0] is the path to execute; PATH is not searched
    std::vector<std::string> environment;  ///< "NAME=value", complete: nothing is inherited
    int stdout_fd = 1;                     ///< becomes the child's 1; stays the caller's to close
    int stderr_fd = 2;
    std::vector<int> inherited_fds = {};  ///< more descriptors that the child gets, under the same numbers
    CpuMask cpus = {};                    ///< on which it may run, with the memory near them; empty: as the caller
    int group_fd = -1;         ///< of the folder of a control group that the child joins before its exec; -1: none
    bool joins_group = false;  ///< moves there, even where it could be born in the group
};

/// Returns the error of a node that cannot start a worker although the program is sound: `what`, the errno, what to do.
/// Errc::kLimit if a resource ran out, Errc::kSystem for a call that should never fail.
[[nodiscard]] Error start_error(std::string_view what, int errno_value);

class ChildProcess {
public:
    /// Starts `spec` in its own process group, with default signal handling, the caller's stdin and no other
    /// descriptors than those of `spec`; the kernel kills it when this thread ends. Returns after the exec. Errors: the
    /// errno of exec, with the path; start_error() for failures before the exec. No process is left then.
    [[nodiscard]] static Result<ChildProcess> start(boost::asio::io_context& io, const ChildSpec& spec);

    /// Kills the processes that are left in the group with SIGKILL and reaps the leader.
    ~ChildProcess();
    ChildProcess(ChildProcess&& other) noexcept;
    ChildProcess& operator=(ChildProcess&&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }

    /// Calls `ended` once, from the io_context, when the process has ended. It may still have no status() then: if a
    /// tracer is attached (gdb, strace, its own leak checker), the kernel shows us the end only when the tracer has
    /// seen it or has ended, and sends a SIGCHLD at that time.
    void async_wait(std::function<void()> ended);

    /// Returns how it ended; empty while it runs, or while its tracer withholds the end. It stays a zombie until
    /// reap(): so its pid and its group's number cannot pass to another process, and signal_group() keeps reaching the
    /// group's other members.
    [[nodiscard]] std::optional<ExitStatus> status() const;

    void signal(int number) const;        ///< the process alone
    void signal_group(int number) const;  ///< every process of its group

    /// Waits for the end and gives the pid back to the kernel. Afterwards only the destructor may be called.
    ExitStatus reap();
    /// Releases a process that survives SIGKILL (it sleeps in the kernel): the parent of this process will inherit it.
    void abandon() { pid_ = -1; }

private:
    ChildProcess(boost::asio::io_context& io, pid_t pid, int pidfd);

    pid_t pid_ = -1;                               ///< -1 when reaped or moved from
    boost::asio::posix::stream_descriptor pidfd_;  ///< readable when the process has ended
};

}  // namespace ddprun::agent

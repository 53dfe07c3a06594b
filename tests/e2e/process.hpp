#pragma once
// Real programs for end-to-end tests: start one, watch it, and prove at the end that nothing of it is left.
// For the test's own thread only.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/exit_status.hpp"

namespace e2e {

using Seconds = std::chrono::duration<double>;

/// Polls `condition` every 10 ms; false when `limit` passes first.
[[nodiscard]] bool eventually(Seconds limit, const std::function<bool()>& condition);

/// A folder of its own for one test case; removed at the end unless the test failed. All that a test starts gets it as TMPDIR and
/// carries its name in the environment (DDPRUN_TEST), by which leftovers are found.
class Sandbox {
public:
    explicit Sandbox(const std::string& name);
    ~Sandbox();
    Sandbox(const Sandbox&) = delete;
    Sandbox& operator=(const Sandbox&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const std::string& marker() const { return marker_; }

    /// "pid: command line" of every process that carries the marker.
    [[nodiscard]] std::vector<std::string> processes() const;
    [[nodiscard]] std::vector<pid_t> pids(const std::string& command_contains = "") const;
    /// Empty when within 10 s no process is left and /dev/shm, TMPDIR and the abstract sockets are as they were.
    [[nodiscard]] std::string leftovers() const;

private:
    std::filesystem::path path_;
    std::string marker_;
    std::vector<std::string> shared_memory_before_;
};

struct Command {
    std::vector<std::string> argv;
    std::map<std::string, std::string> env;   ///< added to the test's own
    std::filesystem::path directory;          ///< working directory; empty: the test's own
};

/// One running program; stdout and stderr go to files in the sandbox. Killed with SIGKILL if it still runs at the end.
class Process {
public:
    Process(const Sandbox& sandbox, const Command& command);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const;
    /// Waits for its end. A program that is still running after `limit` is killed and reported as killed by SIGALRM.
    ddprun::ExitStatus wait(Seconds limit);
    [[nodiscard]] bool running();
    [[nodiscard]] std::string out() const;
    [[nodiscard]] std::string err() const;

private:
    std::filesystem::path out_;
    std::filesystem::path err_;
    pid_t pid_ = -1;
    bool reaped_ = false;
    ddprun::ExitStatus status_;
};

struct Outcome {
    ddprun::ExitStatus status;
    std::string out;
    std::string err;
};

/// Starts, waits, collects.
[[nodiscard]] Outcome run(const Sandbox& sandbox, const Command& command, Seconds limit = Seconds(120));

/// A TCP port of 127.0.0.1 that was free a moment ago, and is none that the system gives to others meanwhile; for
/// programs that must be told one.
[[nodiscard]] int free_port();

/// The folder of the built programs.
[[nodiscard]] std::filesystem::path bin();
/// A folder of shell tools that make virtual hosts; empty when this machine has none.
[[nodiscard]] std::filesystem::path cluster_tools();
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace e2e

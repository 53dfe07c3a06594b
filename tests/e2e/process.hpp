#pragma once
// Real programs for end-to-end tests: starts one, watches it, and checks at the end that nothing of it is left.
// For the test's own thread only.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/system/exit_status.hpp"

namespace e2e {

using Seconds = std::chrono::duration<double>;

/// True in a sanitizer build, where jobs are smaller because they take several times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Polls `condition` every 10 ms until it is true; returns false when `limit` passes first. The last look is after the
/// limit, however long this process stood still.
[[nodiscard]] bool eventually(Seconds limit, const std::function<bool()>& condition);

/// The folder of one test case; removed at the end unless the test failed. Every process of the test gets it as TMPDIR
/// and has its name in the environment (DDPRUN_TEST), by which leftovers are found.
class Sandbox {
public:
    explicit Sandbox(const std::string& name);
    ~Sandbox();
    Sandbox(const Sandbox&) = delete;
    Sandbox& operator=(const Sandbox&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const std::string& marker() const { return marker_; }

    /// Returns "pid: command line" of every process with the marker.
    [[nodiscard]] std::vector<std::string> processes() const;
    [[nodiscard]] std::vector<pid_t> pids(const std::string& command_contains = "") const;
    /// Waits up to 30 s until no process is left and /dev/shm, TMPDIR and the abstract sockets are as before. Returns
    /// what is left; empty: nothing.
    [[nodiscard]] std::string leftovers() const;

private:
    std::filesystem::path path_;
    std::string marker_;
    std::vector<std::string> shared_memory_before_;
};

struct Command {
    std::vector<std::string> argv;
    std::map<std::string, std::string> env;  ///< added to the test's own
    std::filesystem::path directory;         ///< working directory; empty: the test's own
};

/// One running program, with stdout and stderr in files of the sandbox. The destructor kills it if it still runs.
class Process {
public:
    Process(const Sandbox& sandbox, const Command& command);
    ~Process();
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void signal(int number) const;
    /// Waits for its end. A program that still runs after `limit` is killed and reported as killed by SIGALRM.
    ddprun::ExitStatus wait(Seconds limit);
    [[nodiscard]] bool running();
    [[nodiscard]] std::string out() const;
    /// Returns stderr without the times of day before ddprun's own lines, which no test can foresee.
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

/// Runs `command` to its end and returns its status and output.
[[nodiscard]] Outcome run(const Sandbox& sandbox, const Command& command, Seconds limit = Seconds(120));

/// Returns a TCP port of 127.0.0.1 that was free a moment ago and that the system does not give to others meanwhile;
/// for programs that need a number.
[[nodiscard]] int free_port();

/// Returns the folder of the built programs.
[[nodiscard]] std::filesystem::path bin();
/// Returns ddprun. In a sanitizer build it may be that of another build (CMake's DDP_LAUNCHER).
[[nodiscard]] std::filesystem::path launcher();
/// Returns the root of the source tree.
[[nodiscard]] std::filesystem::path source();
/// Returns the folder of the shell tools for virtual hosts; empty: this machine has none.
[[nodiscard]] std::filesystem::path cluster_tools();
[[nodiscard]] std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace e2e

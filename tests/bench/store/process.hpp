#pragma once
// Process: a server that the benchmark started. Stopped by its pid when the owner goes; dies with the benchmark.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/system/unique_fd.hpp"

namespace ddprun::bench {

class Process {
public:
    /// `cpu`: the only one that it may use; -1: any. Throws when the program cannot be started.
    Process(const std::vector<std::string>& arguments, int cpu);
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process();

    [[nodiscard]] pid_t pid() const { return pid_; }
    /// The first line of its output; empty when it ends or says nothing until then.
    [[nodiscard]] std::string first_line(std::chrono::milliseconds timeout);
    [[nodiscard]] bool running();
    /// CPU time of all its threads.
    [[nodiscard]] std::uint64_t cpu_ns() const;
    [[nodiscard]] std::uint64_t resident_bytes() const;
    /// Returns when it has used no CPU time worth mentioning for a while: everything sent was looked at.
    void wait_until_quiet() const;

private:
    pid_t pid_ = -1;
    UniqueFd output_;
};

}  // namespace ddprun::bench

#pragma once
// StepFile: owns the file into which a worker of any language writes the step of the training that it begins
// (DDPRUN_STEP_FILE), for programs that cannot call ddp::set_step(). It is memory of this process, as ErrorFile. Owned
// by Worker; one thread.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

inline constexpr const char* kStepFileVariable = "DDPRUN_STEP_FILE";

class StepFile {
public:
    /// Makes an empty file.
    [[nodiscard]] static Result<StepFile> make();

    /// Returns the path for the worker's environment, in this process's /proc entry.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Returns the number on its last whole line; nullopt: the worker has written none so far.
    [[nodiscard]] std::optional<std::uint64_t> read() const;

private:
    StepFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    std::string path_;
    UniqueFd fd_;
};

}  // namespace ddprun::agent

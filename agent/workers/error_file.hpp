#pragma once
// Where a worker may leave its exception as JSON (TORCHELASTIC_ERROR_FILE), and how to read it (torchrun's two shapes).

#include <cstddef>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// More than this of an error file is not read: a worker's mistake must not become the agent's memory.
inline constexpr std::size_t kMaxErrorFileBytes = 64u << 10;

class ErrorFile {
public:
    /// A file in memory, reached through this process's /proc entry: nothing is left on disk, whoever is killed.
    [[nodiscard]] static Result<ErrorFile> in_memory();
    /// A new, empty file; one of that name from an earlier run is replaced.
    [[nodiscard]] static Result<ErrorFile> at(std::string path);

    /// For the worker's environment.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// What the worker has written; empty when nothing. Errors: kLimit.
    [[nodiscard]] Result<std::string> read() const;
    [[nodiscard]] bool empty() const;

private:
    ErrorFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    std::string path_;
    UniqueFd fd_;
};

/// The message of an error file: {"message": {"message": TEXT, …}, …} or {"message": TEXT, …}; empty text gives an
/// empty message. Errors: kMalformed.
[[nodiscard]] Result<std::string> parse_error_file(std::string_view text);

}  // namespace ddprun::agent

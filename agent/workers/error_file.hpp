#pragma once
// ErrorFile: owns the file into which a worker may write its exception as JSON (TORCHELASTIC_ERROR_FILE), in either of
// torchrun's two formats. It is memory of this process, so that no file system is waited for and nothing is left on
// disk, whichever process is killed. Owned by Worker; one thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// A larger error file is not read for the verdict: a worker's mistake must not use up the agent's memory.
inline constexpr std::size_t kMaxErrorFileBytes = 64u << 10;
/// A larger one is not kept beside the log files either.
inline constexpr std::size_t kMaxKeptErrorBytes = 8u << 20;

class ErrorFile {
public:
    /// Makes an empty file.
    [[nodiscard]] static Result<ErrorFile> in_memory();

    /// Returns the path for the worker's environment, in this process's /proc entry.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Returns the text that the worker has written; may be empty. Errors: kLimit, or a system error; the message
    /// begins with "its error file", for a caller that names the rank.
    [[nodiscard]] Result<std::string> read(std::size_t max_bytes = kMaxErrorFileBytes) const;
    [[nodiscard]] bool empty() const;

private:
    ErrorFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

    std::string path_;
    UniqueFd fd_;
};

/// Returns the message of an error file: {"message": {"message": TEXT, …}, …} or {"message": TEXT, …}; empty if `text`
/// is. Errors: kMalformed, with a message as that of read().
[[nodiscard]] Result<std::string> parse_error_file(std::string_view text);

}  // namespace ddprun::agent

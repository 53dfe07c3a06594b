#pragma once
// ResultFile: a file in which ddprun leaves how the job ended, under a path that the user or the parent of ddprun
// names: the job's error file and the report; or a worker's error file. Written in one step. Used by Agent, LogWriter
// and the launcher.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"

namespace ddprun::agent {

/// The longest time for which a slow or hanging file system holds up the beginning or the end of ddprun.
inline constexpr std::chrono::seconds kFileSystemTimeout{8};

struct ResultFile {
    std::string path;    ///< empty: the file is not wanted
    std::string name;    ///< in messages: "the report /x/y (--report)"
    std::string remedy;  ///< a sentence about a path that cannot be written; empty: none
    /// Of a new file, less the umask. As under torchrun that alone decides which other users may read it: a scheduler
    /// may be one.
    mode_t mode = 0666;
};

/// Removes the file, or empties it if it cannot be removed, so that an earlier attempt's result is not taken for one of
/// this job. A path that is no regular file, such as /dev/null, is left alone. Errors: errno, with name and remedy.
[[nodiscard]] Result<void> clear_file(const ResultFile& file);

/// Checks that write_file() can succeed; leaves nothing behind. Errors: errno, with name and remedy.
[[nodiscard]] Result<void> check_writable(const ResultFile& file);

enum class Existing {
    kReplace,
    kKeep,  ///< nodes may share the path: the culprit's node has written more than the others know
};

/// Writes the file in one step, so that a reader finds all of it or none; in place where that is impossible (a file
/// that exists in a folder that does not allow new ones, or no regular file). Errors: errno, with name and remedy.
[[nodiscard]] Result<void> write_file(const ResultFile& file, std::string_view text, Existing existing);

/// ResultWrites: writes result files, each on a thread of its own: a file system that hangs delays neither the caller
/// nor another file. Not waited for by the destructor. One thread.
class ResultWrites {
public:
    /// Starts write_file(), unless the file is not wanted.
    void start(ResultFile file, std::string text, Existing existing);
    /// Starts `write`, which must own all that it uses; `name` is for messages.
    void start(std::string name, std::function<Result<void>()> write);
    /// Waits until everything is written, at most until `deadline`. Returns a sentence about each file that is not.
    [[nodiscard]] std::vector<std::string> finish(TimePoint deadline);

private:
    struct Write {
        std::string name;
        std::future<Result<void>> done;
    };
    std::vector<Write> writes_;
};

}  // namespace ddprun::agent

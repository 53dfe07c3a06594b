#pragma once
// LossLog: writes a line "step loss" after each step, for plots and for comparing runs bit by bit. Rank 0 only.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "support/user_error.hpp"

namespace train {

class LossLog {
public:
    /// Opens the file, unless the path is empty. Keeps the lines of an earlier run up to `resumed_step` and drops later
    /// ones. Throws UserError, on this rank alone, if it cannot be written.
    LossLog(std::filesystem::path path, std::size_t resumed_step) : path_(std::move(path)) {
        if (path_.empty()) return;
        std::string kept;
        std::error_code absent;
        const int pipe = std::filesystem::is_fifo(path_, absent) ? open_with_reader() : -1;
        // A pipe or a device is only written to: reading it may never end.
        if (std::filesystem::is_regular_file(path_, absent)) {
            std::ifstream earlier(path_);
            std::size_t step = 0;
            for (std::string loss; earlier >> step >> loss && step <= resumed_step;)
                kept += concat(step, ' ', loss, '\n');
        }
        file_.open(path_);
        if (pipe >= 0) ::close(pipe);
        file_.precision(std::numeric_limits<double>::max_digits10);
        put(kept);
    }

    /// Writes one line and flushes it. Throws UserError on this rank alone.
    void write(std::size_t step, double loss) {
        if (!path_.empty()) put(step, ' ', loss, '\n');
    }

private:
    /// Opens a pipe, so that opening it again does not wait for a reader. Throws if it has none now. -1: another error.
    [[nodiscard]] int open_with_reader() const {
        const int pipe = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (pipe < 0 && errno == ENXIO)
            throw UserError(concat("cannot write loss log ", path_.string(),
                                   ": this pipe has no reader. Start its reader first, or pass another --loss-log"));
        return pipe;
    }

    template <typename... Parts>
    void put(const Parts&... parts) {
        (file_ << ... << parts).flush();
        if (file_) return;
        throw UserError(concat("cannot write loss log ", path_.string(), ": ", std::strerror(errno),
                               ". Make room there, or pass another --loss-log"));
    }

    std::filesystem::path path_;
    std::ofstream file_;
};

}  // namespace train

#pragma once
// LossLog: writes a line "step loss" after each step, for plots and for comparing runs bit by bit. Rank 0 only.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace train {

class LossLog {
public:
    /// Opens the file. Keeps the lines of an earlier run up to `resumed_step` and drops later ones. A file that is not
    /// regular (/dev/null, a pipe) is only written to. Throws UserError if it cannot be written.
    LossLog(const std::filesystem::path& path, std::size_t resumed_step);

    /// Writes one line and flushes it. Throws UserError on this rank alone.
    void write(std::size_t step, double loss);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace train

#pragma once
// "step loss" per line, each on disk's way before the next step begins. For plots, and for comparing runs bit by bit.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace train {

class LossLog {
public:
    /// Keeps the lines of an earlier run up to `resumed_step` and drops what it wrote after that checkpoint. What is
    /// no regular file (/dev/null, a pipe) is not read, only written to.
    /// Throws UserError if the file cannot be written.
    LossLog(const std::filesystem::path& path, std::size_t resumed_step);

    void write(std::size_t step, double loss);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace train

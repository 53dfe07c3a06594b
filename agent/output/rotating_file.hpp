#pragma once
// RotatingFile: an open log file that is renamed to NAME.1 when it is full, NAME.1 to NAME.2 and so on, and goes on as
// a new NAME. A line of up to kMaxLineBytes is never split between two files. Owned by a LogFile; used by the writer
// thread alone.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// When a file is rotated, and how many are kept beside it.
struct Rotation {
    std::uint64_t max_bytes = 0;  ///< of one file; 0: it grows without limit
    int keep = 3;
};

/// Returns how many of `bytes` belong into a file of `size` bytes; if that is not all, the file is then rotated. Whole
/// lines fit into `max_bytes`, unless the file had the beginning of one already. `line_bytes`: so many bytes of an
/// unfinished line are at its end.
[[nodiscard]] std::size_t bytes_before_rotation(std::string_view bytes, std::uint64_t size, std::uint64_t max_bytes,
                                                std::size_t line_bytes);

class RotatingFile {
public:
    RotatingFile() = default;  ///< closed
    /// `path` is used for the rotation alone.
    RotatingFile(UniqueFd fd, std::string path, Rotation rotation);

    [[nodiscard]] bool is_open() const { return static_cast<bool>(fd_); }
    /// Appends `bytes`. Returns how many were written; if that is not all of them, errno is set.
    [[nodiscard]] std::size_t write(std::string_view bytes);
    /// Returns once that the file could not be rotated, so that it grows, or that a full one could not be closed;
    /// success: nothing to report.
    [[nodiscard]] Result<void> take_problem();
    /// Closes the file. Returns 0, or the errno of close(2), by which some file servers report a full disk.
    [[nodiscard]] int close();

private:
    [[nodiscard]] Result<void> rotate();

    UniqueFd fd_;
    std::string path_;
    Rotation rotation_;
    std::uint64_t size_ = 0;
    std::size_t line_bytes_ = 0;  ///< of the unfinished line at the end
    Result<void> problem_;
};

}  // namespace ddprun::agent

#include "agent/output/rotating_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/output/line_buffer.hpp"
#include "agent/output/log_files.hpp"
#include "common/system/write_all.hpp"

namespace ddprun::agent {
namespace {

std::uint64_t size_of(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string numbered(const std::string& path, int number) {
    return number == 0 ? path : fmt::format("{}.{}", path, number);
}

}  // namespace

std::size_t bytes_before_rotation(std::string_view bytes, std::uint64_t size, std::uint64_t max_bytes,
                                  std::size_t line_bytes) {
    const std::uint64_t room = size < max_bytes ? max_bytes - size : 0;
    if (bytes.size() <= room) return bytes.size();
    const std::size_t last_end = room == 0 ? std::string_view::npos : bytes.rfind('\n', room - 1);
    if (last_end != std::string_view::npos) return last_end + 1;
    if (line_bytes == 0 && size > 0) return 0;
    const std::string_view line = bytes.substr(0, kMaxLineBytes - std::min(line_bytes, kMaxLineBytes));
    const std::size_t end = line.find('\n');  // of a line that is longer than a file
    return end == std::string_view::npos ? line.size() : end + 1;
}

RotatingFile::RotatingFile(UniqueFd fd, std::string path, Rotation rotation)
    : fd_(std::move(fd)), path_(std::move(path)), rotation_(rotation) {
    if (rotation_.max_bytes > 0) size_ = size_of(fd_.get());  // it may be of an earlier run
}

std::size_t RotatingFile::write(std::string_view bytes) {
    std::size_t written = 0;
    while (written < bytes.size()) {
        const std::string_view rest = bytes.substr(written);
        const std::size_t now = rotation_.max_bytes == 0
                                    ? rest.size()
                                    : bytes_before_rotation(rest, size_, rotation_.max_bytes, line_bytes_);
        const std::size_t count = write_all(fd_.get(), rest.substr(0, now));
        written += count;
        size_ += count;
        const std::size_t last_end = rest.substr(0, count).rfind('\n');
        line_bytes_ = last_end == std::string_view::npos ? line_bytes_ + count : count - last_end - 1;
        if (count < now) break;
        if (written < bytes.size()) {
            if (const Result<void> rotated = rotate(); !rotated) {
                rotation_.max_bytes = 0;  // no output must be lost
                problem_ = rotated;
            }
        }
    }
    return written;
}

/// Renames the files and opens a new one. On failure the file stays the one that it is. A file that is missing was
/// renamed or removed by another program, such as logrotate.
Result<void> RotatingFile::rotate() {
    const auto grows = [this](Error error, std::string_view advice) {
        error.message += fmt::format("; {} now grows without limit. {}", path_, advice);
        return error;
    };
    if (rotation_.keep == 0 && ::ftruncate(fd_.get(), 0) != 0)
        return grows(system_error(fmt::format("cannot empty {}", path_), errno), "Keep files with --log-keep.");
    bool moved = false;  // this file
    for (int number = rotation_.keep - 1; number >= 0; --number) {
        const std::string from = numbered(path_, number);
        const std::string to = numbered(path_, number + 1);
        moved = ::rename(from.c_str(), to.c_str()) == 0;
        if (moved || errno == ENOENT) continue;
        return grows(system_error(fmt::format("cannot rename {} to {}", from, to), errno),
                     fmt::format("Remove {}, or make its folder writable.", to));
    }
    if (rotation_.keep > 0) {
        Result<UniqueFd> next = open_log_file(path_);
        if (!next) {
            if (moved) ::rename(numbered(path_, 1).c_str(), path_.c_str());
            return grows(next.error(), "Make its folder writable, or raise --log-max-size.");
        }
        if (const int failed = close(); failed != 0)
            problem_ = system_error(fmt::format("the end of {} may be missing", numbered(path_, 1)), failed);
        fd_ = std::move(*next);
    }
    size_ = 0;
    line_bytes_ = 0;
    return {};
}

Result<void> RotatingFile::take_problem() { return std::exchange(problem_, Result<void>()); }

int RotatingFile::close() { return !fd_ || ::close(fd_.release()) == 0 ? 0 : errno; }

}  // namespace ddprun::agent

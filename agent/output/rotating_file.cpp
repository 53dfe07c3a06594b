#include "agent/output/rotating_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "agent/output/log_files.hpp"

namespace ddprun::agent {
namespace {

/// Writes `bytes`; returns how many were written. If that is not all of them, errno is set.
std::size_t write_all(int fd, std::string_view bytes) {
    std::size_t written = 0;
    while (written < bytes.size()) {
        const ssize_t count = ::write(fd, bytes.data() + written, bytes.size() - written);
        if (count < 0 && errno != EINTR) break;
        if (count > 0) written += static_cast<std::size_t>(count);
    }
    return written;
}

std::uint64_t size_of(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::string numbered(const std::string& path, int number) {
    return number == 0 ? path : fmt::format("{}.{}", path, number);
}

}  // namespace

std::size_t bytes_before_rotation(std::string_view bytes, std::uint64_t size, std::uint64_t max_bytes, bool in_a_line) {
    const std::uint64_t room = size < max_bytes ? max_bytes - size : 0;
    if (bytes.size() <= room) return bytes.size();
    const std::size_t last_end = room == 0 ? std::string_view::npos : bytes.rfind('\n', room - 1);
    if (last_end != std::string_view::npos) return last_end + 1;
    if (!in_a_line && size > 0) return 0;
    const std::size_t end = bytes.find('\n');  // of a line that is longer than a file
    return end == std::string_view::npos ? bytes.size() : end + 1;
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
                                    : bytes_before_rotation(rest, size_, rotation_.max_bytes, in_a_line_);
        const std::size_t count = write_all(fd_.get(), rest.substr(0, now));
        written += count;
        size_ += count;
        if (count > 0) in_a_line_ = rest[count - 1] != '\n';
        if (count < now) break;
        if (written < bytes.size()) note(rotate());
    }
    return written;
}

/// Renames the files and opens a new one. On failure the file stays the one that it is.
Result<void> RotatingFile::rotate() {
    for (int number = rotation_.keep - 1; number >= 0; --number) {
        const bool moved = ::rename(numbered(path_, number).c_str(), numbered(path_, number + 1).c_str()) == 0;
        if (!moved && (errno != ENOENT || number == 0)) return system_error("it cannot be renamed", errno);
    }
    if (rotation_.keep == 0 && ::unlink(path_.c_str()) != 0) return system_error("it cannot be removed", errno);
    Result<UniqueFd> next = open_log_file(path_);
    if (!next) {
        if (rotation_.keep > 0) ::rename(numbered(path_, 1).c_str(), path_.c_str());
        return next.error();
    }
    fd_ = std::move(*next);
    size_ = 0;
    return {};
}

/// A file that cannot be rotated is one that grows without limit, because no output must be lost.
void RotatingFile::note(Result<void> rotated) {
    if (rotated) return;
    rotation_.max_bytes = 0;
    problem_ = with_context(fmt::format("cannot rotate the log file {}; it grows on", path_), rotated.error());
}

Result<void> RotatingFile::take_problem() { return std::exchange(problem_, Result<void>()); }

Result<void> RotatingFile::close() {
    if (!fd_ || ::close(fd_.release()) == 0) return {};
    return system_error(fmt::format("the end of the log file {} may be missing", path_), errno);
}

}  // namespace ddprun::agent

#include "agent/output/result_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "common/system/within.hpp"
#include "common/system/write_all.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

Error with_remedy(Error error, const ResultFile& file) {
    if (!file.remedy.empty()) error.message += ". " + file.remedy;
    return error;
}

Error cannot_write(const ResultFile& file, int errno_value) {
    return with_remedy(system_error(fmt::format("cannot write {}", file.name), errno_value), file);
}

/// Opens `path` with `flags`, and writes `text`. Returns 0, or the errno.
int open_and_write(const std::string& path, int flags, std::string_view text, mode_t mode = 0) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | flags, mode));
    return fd && write_all(fd.get(), text) == text.size() ? 0 : errno;
}

bool has_content(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && (!S_ISREG(status.st_mode) || status.st_size > 0);
}

/// Writes a new file. Returns 0, or the errno: then there is none.
int write_new(const std::string& unfinished, std::string_view text, mode_t mode) {
    const int failed = open_and_write(unfinished, O_CREAT | O_EXCL | O_NOFOLLOW, text, mode);
    if (failed != 0) ::unlink(unfinished.c_str());
    return failed;
}

/// Returns the name of a file beside `path` that no other process uses.
std::string unfinished_name(const std::string& path) { return fmt::format("{}.{}", path, random_id().substr(0, 8)); }

/// Gives the file `from` the name `to`. Returns 0, or the errno; `from` is gone in either case.
int put_in_place(const std::string& from, const std::string& to, Existing existing) {
    int failed = 0;
    if (existing == Existing::kKeep && ::link(from.c_str(), to.c_str()) != 0 && errno != EEXIST) failed = errno;
    const bool emptied = failed == 0 && existing == Existing::kKeep && !has_content(to);  // by a launcher that begins
    const bool no_links = failed == EPERM || failed == ENOTSUP || failed == ENOSYS;
    if (existing == Existing::kReplace || no_links || emptied)
        failed = ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    ::unlink(from.c_str());  // an error means that it was renamed
    return failed;
}

std::optional<mode_t> type_of(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
    return status.st_mode & S_IFMT;
}

}  // namespace

Result<void> clear_file(const ResultFile& file) {
    const std::string& path = file.path;
    struct stat target {};
    const std::optional<mode_t> type = type_of(path);
    if (type == S_IFREG && ::unlink(path.c_str()) == 0) return {};
    if (!type || ::stat(path.c_str(), &target) != 0 || !S_ISREG(target.st_mode)) return {};
    if (::truncate(path.c_str(), 0) == 0) return {};
    return with_remedy(system_error(fmt::format("cannot remove {} of an earlier attempt", file.name), errno), file);
}

Result<void> check_writable(const ResultFile& file) {
    const std::optional<mode_t> type = type_of(file.path);
    int failed = EINVAL;
    if (!type || *type == S_IFREG) {
        const std::string unfinished = unfinished_name(file.path);
        failed = write_new(unfinished, "", file.mode);
        ::unlink(unfinished.c_str());
    }
    if (failed != 0 && type) failed = open_and_write(file.path, 0, "");
    if (failed != 0) return cannot_write(file, failed);
    return {};
}

Result<void> write_file(const ResultFile& file, std::string_view text, Existing existing) {
    const std::string& path = file.path;
    if (existing == Existing::kKeep && has_content(path)) return {};
    const std::optional<mode_t> type = type_of(path);
    int failed = EINVAL;
    if (!type || *type == S_IFREG) {
        const std::string unfinished = unfinished_name(path);
        failed = write_new(unfinished, text, file.mode);
        if (failed == 0) failed = put_in_place(unfinished, path, existing);
    }
    if (failed != 0 && type) failed = open_and_write(path, O_TRUNC, text);
    if (failed != 0) return cannot_write(file, failed);
    return {};
}

void ResultWrites::start(ResultFile file, std::string text, Existing existing) {
    if (file.path.empty()) return;
    std::string name = file.name;
    start(std::move(name),
          [file = std::move(file), text = std::move(text), existing] { return write_file(file, text, existing); });
}

void ResultWrites::start(std::string name, std::function<Result<void>()> write) {
    writes_.push_back({std::move(name), start_apart(std::move(write))});
}

std::vector<std::string> ResultWrites::finish(TimePoint deadline) {
    std::vector<std::string> problems;
    for (Write& write : std::exchange(writes_, {})) {
        if (write.done.wait_until(deadline) != std::future_status::ready) {
            problems.push_back(fmt::format("{} was not written within {}. Is its file system slow, or its server away?",
                                           write.name, seconds_text(kFileSystemTimeout)));
        } else if (const Result<void> written = write.done.get(); !written) {
            problems.push_back(written.error().message);
        }
    }
    return problems;
}

}  // namespace ddprun::agent

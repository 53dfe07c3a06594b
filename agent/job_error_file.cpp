#include "agent/job_error_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <optional>

#include "agent/workers/error_file.hpp"
#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::agent {
namespace {

namespace json = boost::json;

Error cannot_write(const std::string& path, int errno_value) {
    Error error =
        system_error(fmt::format("cannot write the error file {} (TORCHELASTIC_ERROR_FILE)", path), errno_value);
    error.message += ". Name a file that this user can create, or unset the variable.";
    return error;
}

/// Returns torchrun's code for an exit status: the exit code, or the signal as a negative number.
int torchrun_code(const ExitStatus& status) {
    return status.kind == ExitStatus::Kind::kSignaled ? -status.number : status.number;
}

std::string message_of(const protocol::FailureReport& culprit) {
    if (!culprit.message.empty()) return culprit.message;
    if (culprit.status.kind == ExitStatus::Kind::kExited) return to_string(culprit.status);
    const int signal = culprit.status.number;
    return fmt::format("Signal {} ({}) received by PID {}", signal, signal_name(signal), culprit.pid);
}

/// Returns the Python traceback at the end of the culprit's stderr, from the first of several that belong together.
std::string traceback_of(const protocol::FailureReport& culprit) {
    const auto& lines = culprit.last_lines;
    const auto begin = std::ranges::find(lines, "Traceback (most recent call last):");
    return fmt::format("{}", fmt::join(begin, lines.end(), "\n"));
}

/// Writes all of `text`; returns 0, or the errno.
int write_text(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
        if (count < 0 && errno != EINTR) return errno;
    }
    return 0;
}

/// Opens `path` with `flags`, and writes `text`. Returns 0, or the errno.
int write_file(const std::string& path, int flags, std::string_view text) {
    // As under torchrun the umask alone decides which other users may read it: a scheduler may be one.
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | flags, 0666));
    return fd ? write_text(fd.get(), text) : errno;
}

bool has_content(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && (!S_ISREG(status.st_mode) || status.st_size > 0);
}

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

std::string job_error_text(const protocol::FailureReport& culprit, std::string_view worker_text,
                           std::chrono::seconds since_epoch) {
    const int code = torchrun_code(culprit.status);
    if (!worker_text.empty() && parse_error_file(worker_text)) {
        json::value value = json::parse({worker_text.data(), worker_text.size()});
        if (json::object* message = value.at("message").if_object()) (*message)["errorCode"] = code;
        return json::serialize(value);
    }
    json::object extra{{"timestamp", std::to_string(since_epoch.count())}};
    if (const std::string trace = traceback_of(culprit); !trace.empty()) extra["py_callstack"] = trace;
    return json::serialize(json::object{
        {"message",
         json::object{{"message", message_of(culprit)}, {"extraInfo", std::move(extra)}, {"errorCode", code}}}});
}

Result<void> clear_job_error_file(const std::string& path) {
    struct stat target {};
    const std::optional<mode_t> type = type_of(path);
    if (type == S_IFREG && ::unlink(path.c_str()) == 0) return {};
    if (!type || ::stat(path.c_str(), &target) != 0 || !S_ISREG(target.st_mode)) return {};
    if (::truncate(path.c_str(), 0) == 0) return {};
    return system_error(
        fmt::format("cannot remove the error file {} (TORCHELASTIC_ERROR_FILE) of an earlier attempt", path), errno);
}

Result<void> write_job_error_file(const std::string& path, std::string_view text, Existing existing) {
    if (existing == Existing::kKeep && has_content(path)) return {};
    const std::optional<mode_t> type = type_of(path);
    int failed = EINVAL;
    if (!type || *type == S_IFREG) {
        const std::string unfinished = fmt::format("{}.{}", path, random_id().substr(0, 8));
        failed = write_file(unfinished, O_CREAT | O_EXCL | O_NOFOLLOW, text);
        if (failed == 0)
            failed = put_in_place(unfinished, path, existing);
        else
            ::unlink(unfinished.c_str());
    }
    if (failed != 0 && type) failed = write_file(path, O_TRUNC, text);
    if (failed != 0) return cannot_write(path, failed);
    return {};
}

}  // namespace ddprun::agent

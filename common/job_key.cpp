#include "common/job_key.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

constexpr std::string_view kFolder = ".ddprun";
constexpr std::string_view kFile = "job-key";
constexpr std::string_view kMakeOne = "openssl rand -hex 32";

Error usage(std::string message) { return {Errc::kUsage, std::move(message)}; }

/// Returns the ways without a file: some file systems have no modes, no owners or no hard links.
std::string alternatives() {
    return fmt::format("Or set {} to a key (output of `{}`) on all nodes, or pass --insecure to all nodes.",
                       kJobKeyVariable, kMakeOne);
}

Error file_error(const std::string& path, std::string_view failure, std::string_view advice) {
    return usage(fmt::format("the job key in {} cannot be used: {}. {} {}", path, failure, advice, alternatives()));
}

std::string_view value_of(const Environment& environment, const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// Returns the key that 64 hexadecimal digits and perhaps the end of a line write; nullopt: `text` is something else.
std::optional<JobKey::Bytes> parse_key(std::string_view text) {
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    JobKey::Bytes bytes;
    if (text.size() != 2 * bytes.size()) return std::nullopt;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const int high = digit(text[2 * i]);
        const int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        bytes[i] = static_cast<unsigned char>(16 * high + low);
    }
    return bytes;
}

/// Reads a key file and checks, on the open file, that no other user can have read or written it.
Result<JobKey> read_file(const std::string& path, int flags, std::string_view if_missing) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
    if (!file && errno == ENOENT) return file_error(path, "there is no such file", if_missing);
    if (!file && errno == ELOOP) return file_error(path, "it is a symbolic link", "Replace it by the file itself.");
    if (!file) return file_error(path, std::strerror(errno), "Make the file readable for this user, and for no other.");
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) return file_error(path, std::strerror(errno), "Use another file.");
    if (!S_ISREG(status.st_mode)) return file_error(path, "it is not a regular file", "Use another file.");
    if (status.st_uid != ::geteuid() && status.st_uid != 0) {
        return file_error(path, fmt::format("it belongs to uid {}, not to this user", status.st_uid),
                          fmt::format("Let {} name a file of yours.", kJobKeyFileVariable));
    }
    // A Kubernetes Secret, which a variable names, is root's, and the group of the pod may read it.
    const bool may_be_secret = status.st_uid == 0 && (flags & O_NOFOLLOW) == 0;
    const unsigned others = may_be_secret ? 037 : 077;
    if (const unsigned mode = status.st_mode & 07777; (mode & others) != 0) {
        return file_error(path, fmt::format("other users may have access to it (mode {:04o})", mode),
                          fmt::format("Run `chmod 600 {}`{}; if another user may have read it, make a new key.", path,
                                      may_be_secret ? " (for a Kubernetes Secret: defaultMode 0400)" : ""));
    }
    std::array<char, 2 * JobKey::kBytes + 3> text{};  // one byte more than any key, to recognise a longer file
    const ssize_t size = ::read(file.get(), text.data(), text.size());
    if (size < 0) return file_error(path, std::strerror(errno), "Use another file.");
    const auto bytes = parse_key({text.data(), static_cast<std::size_t>(size)});
    if (bytes) return JobKey(*bytes, path);
    return file_error(path, "it does not contain a key, which is 64 hexadecimal digits",
                      fmt::format("Make one: `(umask 077; {} > {})`.", kMakeOne, path));
}

/// Makes the file with a new key, unless it exists by then. The file appears under its name as a whole, by a hard link,
/// which is exclusive on NFS, too: several nodes may do this at once, and all read the same key.
Result<void> make_file(const std::string& folder, const std::string& path) {
    const auto failed = [&](const std::string& what) {
        return usage(fmt::format("cannot make the job key {}: {}: {}. Let {} name a file with a key. {}", path, what,
                                 std::strerror(errno), kJobKeyFileVariable, alternatives()));
    };
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return failed(folder);
    const Result<JobKey> key = JobKey::draw();
    if (!key) return key.error();
    const std::string draft = fmt::format("{}.{}", path, random_id());
    const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return failed(draft);
    const std::string text = key->text() + "\n";
    const bool written = write_all(file.get(), text) == text.size() && ::fsync(file.get()) == 0;
    const bool linked = written && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
    const int error = errno;
    ::unlink(draft.c_str());
    errno = error;
    return linked ? Result<void>() : failed(written ? "hard link" : draft);
}

Result<JobKey> key_of_user(const Environment& environment, MissingKey missing) {
    const std::string home(value_of(environment, "HOME"));
    if (home.empty()) {
        return usage(
            fmt::format("there is no job key: HOME, below which it would be kept, is not set. Set HOME, or let {} name "
                        "a file with a key. {}",
                        kJobKeyFileVariable, alternatives()));
    }
    const std::string folder = fmt::format("{}{}{}", home, home.ends_with('/') ? "" : "/", kFolder);
    const std::string path = fmt::format("{}/{}", folder, kFile);
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT && missing == MissingKey::kMake) {
        if (const Result<void> made = make_file(folder, path); !made) return made.error();
    }
    return read_file(path, O_NOFOLLOW,
                     missing == MissingKey::kMake ? "Start the command again." : "Copy it from a node of the job.");
}

}  // namespace

bool names_job_key(const Environment& environment) {
    return !value_of(environment, kJobKeyFileVariable).empty() || !value_of(environment, kJobKeyVariable).empty();
}

Result<JobKey> JobKey::load(const Environment& environment, MissingKey missing) {
    if (const std::string file(value_of(environment, kJobKeyFileVariable)); !file.empty()) {
        auto key = read_file(file, 0, fmt::format("Make one: `(umask 077; {} > {})`.", kMakeOne, file));
        return key ? key : with_context(kJobKeyFileVariable, key.error());
    }
    const std::string_view text = value_of(environment, kJobKeyVariable);
    if (text.empty()) return key_of_user(environment, missing);
    if (const auto bytes = parse_key(text)) return JobKey(*bytes, kJobKeyVariable);
    return usage(
        fmt::format("{} does not contain a key, which is 64 hexadecimal digits. Set it to the output of `{}`, "
                    "the same on all nodes.",
                    kJobKeyVariable, kMakeOne));
}

Result<JobKey> JobKey::draw() {
    Bytes bytes;
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        return Error{Errc::kSystem, fmt::format("cannot draw a job key: getrandom: {}", std::strerror(errno))};
    return JobKey(bytes, kJobKeyVariable);
}

std::string JobKey::text() const { return fmt::format("{:02x}", fmt::join(bytes_, "")); }

}  // namespace ddprun

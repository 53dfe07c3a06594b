#include "launcher/meeting/directory_point.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <utility>
#include <vector>

#include "common/fnv.hpp"
#include "common/ids.hpp"
#include "common/system/standard_fds.hpp"
#include "common/system/unique_fd.hpp"
#include "common/system/within.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxValueBytes = 4096;
constexpr int kMaxReads = 10;  // of a value that is replaced each time it is read

std::string shown(const fs::path& path) { return log_line(path.string(), 300); }

/// Returns the directory for messages, after the option that names it, unless there is another remedy.
std::string place(const fs::path& directory, std::string_view remedy) {
    return fmt::format("{}{}", remedy.empty() ? "--rdzv-dir " : "", shown(directory));
}

/// Returns what to do: to pass `remedy`, or, if that is empty, `by_option`.
std::string advice(std::string_view remedy, std::string_view by_option) {
    return remedy.empty() ? std::string(by_option) : fmt::format("Pass {}.", remedy);
}

/// The files of one name in the directory.
struct Entries {
    std::int64_t newest = 0;          ///< 0: there is none
    std::vector<std::int64_t> older;  ///< which count no longer
};

/// EntryFiles: the file operations for one name. Copied into the thread that performs a call; holds no state.
struct EntryFiles {
    fs::path directory;
    std::string prefix;     ///< of the file names: "ddprun-x."
    std::string remedy;     ///< that of DirectoryPoint
    bool was_there = true;  ///< the directory, at an earlier call

    [[nodiscard]] Error directory_error(int errno_value) const {
        const bool absent = errno_value == ENOENT || errno_value == ENOTDIR;
        Error error = system_error(fmt::format("cannot meet in {}", place(directory, remedy)), errno_value);
        error.message += ". ";
        error.message += !absent     ? advice(remedy, "Pass a --rdzv-dir in which this user may read and write.")
                         : was_there ? "It was there before: check the file system that has it."
                                     : advice(remedy,
                                              "Make a directory on a file system that all nodes share, and pass it to "
                                              "--rdzv-dir.");
        if (absent && !was_there) error.code = Errc::kUsage;
        return error;
    }

    [[nodiscard]] fs::path file(std::int64_t version) const { return directory / fmt::format("{}{}", prefix, version); }

    [[nodiscard]] Result<Entries> list() const {
        std::error_code ec;
        Entries entries;
        for (fs::directory_iterator entry(directory, ec), end; !ec && entry != end; entry.increment(ec)) {
            const std::string name = entry->path().filename().string();
            if (!name.starts_with(prefix)) continue;
            const auto version = parse_number<std::int64_t>(std::string_view(name).substr(prefix.size()));
            if (!version || *version <= 0) continue;  // of another name, or temporary
            if (entries.newest != 0) entries.older.push_back(std::min(entries.newest, *version));
            entries.newest = std::max(entries.newest, *version);
        }
        if (ec) return directory_error(ec.value());
        return entries;
    }

    /// Returns the value of `version`; empty if it was withdrawn; kNotFound if it was replaced meanwhile.
    [[nodiscard]] Result<std::string> content(std::int64_t version) const {
        const fs::path path = file(version);
        const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        struct stat status {};
        const bool opened = fd && ::fstat(fd.get(), &status) == 0;
        if (!opened && (errno == ENOENT || errno == ESTALE)) return Error{Errc::kNotFound, "replaced"};
        const bool foreign = opened && (!S_ISREG(status.st_mode) || !is_own(status.st_uid));
        if (foreign || (!opened && (errno == EACCES || errno == ELOOP))) {
            return Error{
                Errc::kRefused,
                fmt::format("the file {} belongs to another user, so its address is not trusted. {}", shown(path),
                            advice(remedy, "Pass another --rdzv-id, or a --rdzv-dir of your own."))};
        }
        if (!opened) return system_error(fmt::format("cannot read {}", shown(path)), errno);
        std::array<char, kMaxValueBytes> bytes{};
        const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
        if (got < 0 && errno == ESTALE) return Error{Errc::kNotFound, "replaced"};
        if (got < 0) return system_error(fmt::format("cannot read {}", shown(path)), errno);
        std::string text(bytes.data(), static_cast<std::size_t>(got));
        while (text.ends_with('\n')) text.pop_back();
        return text;
    }

    /// Returns the newest entry; version 0: there is none; an empty value: it was withdrawn.
    [[nodiscard]] Result<Published> newest(std::int64_t at_least) const {
        for (int i = 0; i < kMaxReads; ++i) {
            const auto entries = list();
            if (!entries) return entries.error();
            // The list may be older than a link that has just failed: NFS caches directories.
            const std::int64_t version = std::max(entries->newest, at_least);
            if (version == 0) return Published{};
            auto value = content(version);
            if (value) return Published{std::move(*value), version};
            if (value.error().code != Errc::kNotFound) return value.error();
            at_least = 0;
        }
        return Error{Errc::kLimit, fmt::format("the files {}* in {} change all the time", prefix, shown(directory))};
    }

    /// Returns whether a file of `owner` is this user's. NFS may map root, and so all that root makes, to another user.
    [[nodiscard]] bool is_own(uid_t owner) const {
        if (owner == ::geteuid() || ::geteuid() != 0) return owner == ::geteuid();
        const fs::path path = directory / fmt::format("{}{}.tmp", prefix, random_id());
        const UniqueFd sample(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        struct stat status {};
        const bool mapped = sample && ::fstat(sample.get(), &status) == 0 && status.st_uid == owner;
        if (sample) ::unlink(path.c_str());
        return mapped;
    }

    /// Writes a temporary file, complete on disk. Returns its path.
    [[nodiscard]] Result<fs::path> write_temporary(const std::string& value) const {
        const fs::path path = directory / fmt::format("{}{}.tmp", prefix, random_id());
        const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (!fd) return directory_error(errno);
        const std::string line = value.empty() ? "" : value + "\n";
        const bool written = ::write(fd.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
        if (written && ::fsync(fd.get()) == 0) return path;
        const int error = errno;
        ::unlink(path.c_str());
        return system_error(fmt::format("cannot write {}", shown(path)), error);
    }

    /// Publishes `value` as `version`. Returns false if that version exists.
    [[nodiscard]] Result<bool> publish(const std::string& value, std::int64_t version) const {
        const auto temporary = write_temporary(value);
        if (!temporary) return temporary.error();
        bool linked = ::link(temporary->c_str(), file(version).c_str()) == 0;
        const int error = errno;
        struct stat status {};
        // NFS repeats a request whose reply was lost, and then the first one is in its way.
        if (!linked) linked = ::stat(temporary->c_str(), &status) == 0 && status.st_nlink == 2;
        ::unlink(temporary->c_str());
        if (!linked && error != EEXIST) return link_error(directory, error, remedy);
        return linked;
    }

    /// Publishes `value` as `version` and removes older ones. Returns false if a version as new was there.
    [[nodiscard]] Result<bool> publish_newest(const std::string& value, std::int64_t version) const {
        const auto published = publish(value, version);
        if (!published || !*published) return published;
        // If this agent was very slow, newer versions have come and gone and left the number free.
        const auto entries = list();
        if (!entries) return entries.error();
        if (entries->newest > version) {
            ::unlink(file(version).c_str());
            return false;
        }
        for (const std::int64_t older : entries->older) ::unlink(file(older).c_str());
        return true;
    }

    [[nodiscard]] Result<std::optional<Published>> read() const {
        auto entry = newest(0);
        if (!entry) return entry.error();
        if (entry->value.empty()) return std::optional<Published>{};
        return std::optional(std::move(*entry));
    }

    [[nodiscard]] Result<Claim> claim(const std::string& value, const std::optional<Published>& replaces) const {
        auto there = newest(0);
        if (!there) return there.error();
        const std::int64_t expected = replaces ? replaces->version : there->value.empty() ? there->version : -1;
        if (there->version != expected) return claim_lost(std::move(*there));
        const auto mine = publish_newest(value, expected + 1);
        if (!mine) return mine.error();
        if (*mine) return Claim{true, Published{value, expected + 1}};
        there = newest(expected + 1);
        return there ? claim_lost(std::move(*there)) : Result<Claim>(there.error());
    }

    static Claim claim_lost(Published there) {
        if (there.value.empty()) return {};
        return {false, std::move(there)};
    }

    /// Removes the value of a name that does not come again.
    [[nodiscard]] Result<void> remove(std::int64_t version) const {
        if (::unlink(file(version).c_str()) == 0 || errno == ENOENT) return {};
        return system_error(fmt::format("cannot remove {}", shown(file(version))), errno);
    }

    [[nodiscard]] Result<void> withdraw(std::int64_t version) const {
        const auto withdrawn = publish_newest("", version + 1);
        return withdrawn ? Result<void>() : withdrawn.error();
    }
};

EntryFiles files_of(const fs::path& directory, const std::string& name, const std::string& remedy) {
    return {directory, as_entry_name(name) + ".", remedy};
}

/// Returns the result of `call`, which may wait for a file server.
template <typename Call>
auto in_time(const fs::path& directory, std::string_view remedy, std::chrono::milliseconds limit, Call call)
    -> decltype(call()) {
    auto answer = start_apart(std::move(call));
    const auto early = std::min(limit, kReportWaitAfter);
    if (answer.wait_for(early) == std::future_status::ready) return answer.get();
    if (early < limit && stderr_has_room())
        spdlog::info("waiting for the file system of {}; giving up in {}", place(directory, remedy),
                     seconds_text(limit - early));
    if (answer.wait_for(limit - early) == std::future_status::ready) return answer.get();
    return Error{Errc::kTimeout, fmt::format("cannot meet in {}: the file system has not answered for {}. "
                                             "Check the file server, or pass {}.",
                                             place(directory, remedy), seconds_text(limit),
                                             remedy.empty() ? "a directory on another one" : remedy)};
}

}  // namespace

std::string as_entry_name(std::string_view name) {
    constexpr std::size_t kMaxEntryBytes = 160;  // a file's name has 255 at most, and some bytes follow
    std::string entry;
    bool first_slash = true;
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '/' && std::exchange(first_slash, false)) {
            entry += '-';
        } else if (std::isalnum(byte) != 0 || c == '-' || c == '_') {
            entry += c;
        } else {
            entry += fmt::format("%{:02X}", byte);
        }
    }
    if (entry.size() <= kMaxEntryBytes) return entry;
    Fnv64 hash;  // no unchanged name has a tilde
    hash.add(name);
    return fmt::format("{}~{:016x}", entry.substr(0, kMaxEntryBytes), hash.value());
}

Error link_error(const std::filesystem::path& directory, int errno_value, std::string_view remedy) {
    Error error = system_error(fmt::format("cannot make a hard link in {}", place(directory, remedy)), errno_value);
    const bool unsupported = errno_value == EPERM || errno_value == EOPNOTSUPP || errno_value == ENOSYS ||
                             errno_value == EMLINK || errno_value == EINVAL;
    error.message +=
        unsupported ? ": this file system has none, and without them two nodes could both host the job. " : ". ";
    error.message += advice(remedy, unsupported ? "Pass a directory on another file system (NFS, Lustre, GPFS), or "
                                                  "name the host by --rdzv-endpoint HOST."
                                                : "Pass a --rdzv-dir in which this user may read and write.");
    return error;
}

Result<std::optional<Published>> DirectoryPoint::read(const std::string& name) {
    EntryFiles files = files_of(directory_, name, remedy_);
    files.was_there = was_there_;
    auto seen = in_time(directory_, remedy_, limit_, [files = std::move(files)] { return files.read(); });
    was_there_ = was_there_ || seen;
    return seen;
}

Result<Claim> DirectoryPoint::claim(const std::string& name, const std::string& value,
                                    const std::optional<Published>& replaces) {
    return in_time(directory_, remedy_, limit_, [files = files_of(directory_, name, remedy_), value, replaces] {
        return files.claim(value, replaces);
    });
}

Result<void> DirectoryPoint::withdraw(const std::string& name, const Published& mine) {
    return in_time(
        directory_, remedy_, std::min(limit_, kWithdrawLimit),
        [files = files_of(directory_, name, remedy_), version = mine.version, once = names_ == Names::kUsedOnce] {
            return once ? files.remove(version) : files.withdraw(version);
        });
}

std::string DirectoryPoint::where(const std::string& name) const {
    return fmt::format("{}.*", shown(directory_ / as_entry_name(name)));
}

std::string DirectoryPoint::removal(const std::string& name) const {
    return fmt::format("rm '{}'.*", shown(directory_ / as_entry_name(name)));
}

std::string DirectoryPoint::elsewhere() const { return remedy_.empty() ? MeetingPoint::elsewhere() : remedy_; }

}  // namespace ddprun::launcher

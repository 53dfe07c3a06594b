#include "agent/guard/fence_group.hpp"

#include <fmt/format.h>
#include <linux/sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "agent/guard/control_group.hpp"
#include "common/ids.hpp"
#include "common/system/files.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

/// Removes the text up to the first `separator` from `text`, and returns it.
std::string_view take(std::string_view& text, char separator) {
    const auto end = text.find(separator);
    const std::string_view taken = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return taken;
}

/// Returns a path of mountinfo without its escapes: "\040" is a blank.
std::string unescaped(std::string_view path) {
    std::string result;
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (path[i] == '\\' && i + 3 < path.size()) {
            result += static_cast<char>((path[i + 1] - '0') * 64 + (path[i + 2] - '0') * 8 + (path[i + 3] - '0'));
            i += 3;
        } else {
            result += path[i];
        }
    }
    return result;
}

/// A line of mountinfo: "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw".
struct Mount {
    std::string root;  ///< the folder of the file system that is mounted
    std::string point;
    std::string_view type;
};

Mount parse_mount(std::string_view line) {
    Mount mount;
    for (int i = 0; i < 3; ++i) take(line, ' ');
    mount.root = unescaped(take(line, ' '));
    mount.point = unescaped(take(line, ' '));
    while (!line.empty() && take(line, ' ') != "-") continue;  // a number of optional fields
    mount.type = take(line, ' ');
    return mount;
}

/// Returns `path` without the folder `root` above it, beginning with a slash or empty; nullopt: it is not below it.
std::optional<std::string> below(std::string_view path, std::string_view root) {
    if (root == "/") return std::string(path == "/" ? "" : path);
    if (!path.starts_with(root)) return std::nullopt;
    const std::string_view rest = path.substr(root.size());
    if (!rest.empty() && rest.front() != '/') return std::nullopt;
    return std::string(rest);
}

/// Waits for the end of `child`. Returns its exit code, which is an errno or 0. Where SIGCHLD is ignored the kernel
/// keeps no exit code: returns 0, and the first worker fails instead.
int wait_for_probe(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return 0;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/// Starts a child process that joins the group of this folder and ends. Returns 0, or the errno.
int start_joining_child(int group_fd) {
    const pid_t child = ::fork();
    if (child < 0) return errno;
    if (child == 0) ::_exit(join_control_group(group_fd));
    return wait_for_probe(child);
}

/// Starts a child process in the group of this folder as a worker starts; it ends at once. Returns 0, or the errno.
/// Sets `has_to_be_joined` if the kernel kills a child that is born in the group.
int start_child_in(int group_fd, bool& has_to_be_joined) {
    clone_args how{};
    how.flags = CLONE_INTO_CGROUP;
    how.exit_signal = SIGCHLD;
    how.cgroup = static_cast<std::uint64_t>(group_fd);
    const auto child = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
    if (child < 0) return is_clone3_refused(errno) ? start_joining_child(group_fd) : errno;
    if (child == 0) ::_exit(0);
    const int failed = wait_for_probe(child);
    has_to_be_joined = failed == EINTR;
    return has_to_be_joined ? start_joining_child(group_fd) : failed;
}

constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO of the kernel

/// Returns the pid namespace of a process, whose folder is /proc/`process`; 0: it cannot be read.
ino_t pid_namespace_of(const std::string& process) {
    struct stat pids {};
    return ::stat(fmt::format("/proc/{}/ns/pid", process).c_str(), &pids) == 0 ? pids.st_ino : 0;
}

/// The maker of a group, as the group's name shows it: the launcher's pid has a meaning only in its pid namespace, and
/// namespaces may share a folder of groups.
struct Maker {
    ino_t pid_namespace = 0;
    pid_t launcher = 0;
};

std::string name_of_group(const Maker& maker) {
    return fmt::format("{}{}-{}-{}", kFenceGroupPrefix, maker.pid_namespace, maker.launcher, random_id().substr(0, 8));
}

/// Returns the maker of the group of this name; nullopt: it is not of a FenceGroup.
std::optional<Maker> maker_of(std::string_view name) {
    if (!name.starts_with(kFenceGroupPrefix)) return std::nullopt;
    name.remove_prefix(kFenceGroupPrefix.size());
    const auto pid_namespace = parse_number<ino_t>(take(name, '-'));
    const auto launcher = parse_number<pid_t>(take(name, '-'));
    if (!pid_namespace || !launcher || *launcher <= 0) return std::nullopt;
    return Maker{*pid_namespace, *launcher};
}

/// Returns whether a process is in a namespace below that of /proc: its status has its pid in each of them.
bool is_in_nested_namespace(const std::string& process) {
    constexpr std::string_view kPids = "\nNSpid:\t";
    const std::string status = content_of(fmt::format("/proc/{}/status", process));
    const auto at = status.find(kPids);
    return at != std::string::npos && status.find('\t', at + kPids.size()) < status.find('\n', at + kPids.size());
}

/// Returns whether a process of this user, or of any for root, is in the pid namespace, or may be: only the initial
/// namespace shows the processes of all others.
bool may_have_processes(ino_t pid_namespace) {
    if (pid_namespace_of("self") != kInitialPidNamespace) return true;
    std::error_code unreadable;
    for (std::filesystem::directory_iterator at("/proc", unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
        const std::string name = at->path().filename().string();
        const auto process = parse_number<pid_t>(name);
        if (!process) continue;
        const ino_t found = pid_namespace_of(name);
        const bool is_of_user = ::kill(*process, 0) == 0;
        const bool is_hidden = found == 0 && is_of_user && is_in_nested_namespace(name);
        if (found == pid_namespace || is_hidden) return true;
    }
    return static_cast<bool>(unreadable);
}

/// Returns whether the launcher of a group, or its whole pid namespace, has ended. The group of another user counts as
/// used, because that user's processes do not show their namespace.
bool has_ended(const Maker& maker, const std::filesystem::path& group) {
    if (maker.pid_namespace == pid_namespace_of("self")) return ::kill(maker.launcher, 0) != 0 && errno == ESRCH;
    struct stat folder {};
    return ::stat(group.c_str(), &folder) == 0 && folder.st_uid == ::geteuid() &&
           !may_have_processes(maker.pid_namespace);
}

/// Removes the groups below `own` that no process is in and whose makers have ended without removing them.
void remove_abandoned_groups(const std::string& own) {
    std::error_code unreadable;  // then there is nothing to remove, and making a group reports the reason
    for (std::filesystem::directory_iterator at(own, unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
        const auto maker = maker_of(at->path().filename().string());
        if (maker && has_ended(*maker, at->path()) && !ControlGroup(at->path().c_str()).is_populated())
            remove_control_group(at->path().c_str());
    }
}

Error unavailable(std::string_view what, int errno_value) {
    return {Errc::kSystem, fmt::format("{}: {}", what, std::strerror(errno_value))};
}

}  // namespace

std::string_view unified_group(std::string_view membership) {
    constexpr std::string_view kUnified = "0::";
    while (!membership.empty()) {
        const std::string_view line = take(membership, '\n');
        if (line.starts_with(kUnified)) return line.substr(kUnified.size());
    }
    return "";
}

std::optional<std::string> control_group_folder(std::string_view mountinfo, std::string_view membership) {
    const std::string_view path = unified_group(membership);
    while (!path.empty() && !mountinfo.empty()) {
        const Mount mount = parse_mount(take(mountinfo, '\n'));
        if (mount.type != "cgroup2") continue;
        if (const auto rest = below(path, mount.root)) return mount.point + *rest;
    }
    return std::nullopt;
}

Result<FenceGroup> FenceGroup::make() {
    const auto own = control_group_folder(content_of("/proc/self/mountinfo"), content_of("/proc/self/cgroup"));
    if (!own) return Error{Errc::kNotFound, "no control groups of version 2 are mounted"};
    remove_abandoned_groups(*own);
    FenceGroup group(fmt::format("{}/{}", *own, name_of_group({pid_namespace_of("self"), ::getpid()})));
    if (::mkdir(group.path_.c_str(), 0755) != 0) {
        const int error = errno;
        group.path_.clear();
        return unavailable(fmt::format("no group can be made below {}", *own), error);
    }
    ControlGroup opened(group.path_.c_str());
    if (!opened.is_open()) return unavailable(fmt::format("cannot open {}", group.path_), errno);
    if (::faccessat(opened.fd(), "cgroup.kill", W_OK, 0) != 0)
        return unavailable("the kernel has no cgroup.kill (Linux 5.14)", errno);
    if (const int error = start_child_in(opened.fd(), group.has_to_be_joined_); error != 0)
        return unavailable(fmt::format("no process may be moved from {} to a group below it", *own), error);
    return group;
}

FenceGroup::FenceGroup(FenceGroup&& other) noexcept
    : path_(std::exchange(other.path_, "")), has_to_be_joined_(other.has_to_be_joined_) {}

FenceGroup::~FenceGroup() {
    if (!path_.empty()) remove_control_group(path_.c_str());
}

}  // namespace ddprun::agent

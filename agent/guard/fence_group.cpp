#include "agent/guard/fence_group.hpp"

#include <fmt/format.h>
#include <linux/sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "agent/guard/control_group.hpp"
#include "common/ids.hpp"
#include "common/system/files.hpp"

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

/// Returns the beginning of the names of groups that are made in this pid namespace: a launcher's pid has a meaning
/// only there, and namespaces may share a folder of groups.
std::string own_prefix() {
    struct stat pids {};
    ::stat("/proc/self/ns/pid", &pids);
    return fmt::format("{}{}-", kFenceGroupPrefix, pids.st_ino);
}

/// Returns the pid of the launcher that made the group of this name; nullopt: it is not of a FenceGroup of this pid
/// namespace.
std::optional<pid_t> launcher_of(std::string_view name) {
    const std::string prefix = own_prefix();
    if (!name.starts_with(prefix)) return std::nullopt;
    name.remove_prefix(prefix.size());
    const std::string_view digits = take(name, '-');
    pid_t launcher = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), launcher);
    const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
    return is_whole && launcher > 0 ? std::optional(launcher) : std::nullopt;
}

/// Removes the groups below `own` that no process is in and whose launcher has ended without removing them.
void remove_abandoned_groups(const std::string& own) {
    std::error_code unreadable;  // then there is nothing to remove, and making a group reports the reason
    for (std::filesystem::directory_iterator at(own, unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
        const auto launcher = launcher_of(at->path().filename().string());
        const bool has_ended = launcher && ::kill(*launcher, 0) != 0 && errno == ESRCH;
        if (has_ended && !ControlGroup(at->path().c_str()).is_populated()) remove_control_group(at->path().c_str());
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
    FenceGroup group(fmt::format("{}/{}{}-{}", *own, own_prefix(), ::getpid(), random_id().substr(0, 8)));
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

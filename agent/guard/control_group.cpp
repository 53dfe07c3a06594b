#include "agent/guard/control_group.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "agent/guard/proc_text.hpp"

namespace ddprun::agent {
namespace {

constexpr int kFolderBufferBytes = 4096;
constexpr int kMaxListedAtOnce = 512;  // the next call finds the others
constexpr int kMaxDepth = 8;           // of groups that processes of the fence have made: an inner ddprun makes one

/// Writes `text` to the file `name` in `folder`. Returns 0, or the errno.
int write_file(int folder, const char* name, const char* text) noexcept {
    const UniqueFd file(::openat(folder, name, O_WRONLY | O_CLOEXEC));
    if (!file) return errno;
    const auto size = static_cast<ssize_t>(std::strlen(text));
    return ::write(file.get(), text, static_cast<std::size_t>(size)) == size ? 0 : errno;
}

/// Calls `visit` with the name of each folder in `folder`: the groups below a group.
template <typename Visit>
void for_each_folder(int folder, const Visit& visit) noexcept {
    ::lseek(folder, 0, SEEK_SET);
    alignas(dirent64) char buffer[kFolderBufferBytes];
    // Uses the system call, because opendir(3) allocates.
    for (ssize_t size; (size = ::getdents64(folder, buffer, sizeof buffer)) > 0;) {
        for (ssize_t offset = 0; offset < size;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + offset);
            if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(entry->d_name);
            offset += entry->d_reclen;
        }
    }
}

UniqueFd open_folder(int parent, const char* name) noexcept {
    return UniqueFd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int list_processes(int folder, pid_t* out, int capacity) noexcept {
    const UniqueFd file(::openat(folder, "cgroup.procs", O_RDONLY | O_CLOEXEC));
    return file ? read_pids(file.get(), out, capacity) : 0;
}

/// Calls `visit` with a descriptor of the group and of each below it.
template <typename Visit>
void for_each_group(int folder, const Visit& visit, int depth = 0) noexcept {
    visit(folder);
    if (depth == kMaxDepth) return;
    for_each_folder(folder, [&](const char* name) {
        if (const UniqueFd below = open_folder(folder, name)) for_each_group(below.get(), visit, depth + 1);
    });
}

/// Sends SIGKILL to each process that is listed in the group and in those below it.
void kill_listed(int folder) noexcept {
    for_each_group(folder, [](int group) {
        pid_t listed[kMaxListedAtOnce];
        const int count = list_processes(group, listed, kMaxListedAtOnce);
        for (int i = 0; i < count; ++i) ::kill(listed[i], SIGKILL);
    });
}

void remove_below(int parent, const char* name, int depth) noexcept {
    if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || depth == kMaxDepth) return;
    const UniqueFd folder = open_folder(parent, name);
    if (!folder) return;
    for_each_folder(folder.get(), [&](const char* below) { remove_below(folder.get(), below, depth + 1); });
    ::unlinkat(parent, name, AT_REMOVEDIR);  // else processes are left, and were reported
}

}  // namespace

ControlGroup::ControlGroup(const char* path) noexcept : folder_(open_folder(AT_FDCWD, path)) {}

void ControlGroup::kill() noexcept {
    has_to_be_joined_ = true;
    [[maybe_unused]] const int ignored = write_file(fd(), "cgroup.kill", "1");  // is_populated() shows the effect
    // The kernel signals the first thread of each process, without effect if that one has ended and others have not.
    kill_listed(fd());
}

void ControlGroup::set_frozen(bool frozen) noexcept {
    // Without the file, in Linux before 5.2, the processes are stopped by signals alone.
    [[maybe_unused]] const int ignored = write_file(fd(), "cgroup.freeze", frozen ? "1" : "0");
}

bool ControlGroup::is_populated() const noexcept {
    char text[256];
    const ssize_t size = read_text_at(fd(), "cgroup.events", text, sizeof text);
    if (size < 0) return errno != ENOENT && errno != ENODEV;  // these two mean that the group was removed
    return std::strstr(text, "populated 0") == nullptr;
}

int ControlGroup::list(pid_t* out, int capacity) const noexcept {
    int count = 0;
    for_each_group(fd(), [&](int group) { count += list_processes(group, out + count, capacity - count); });
    return count;
}

int join_control_group(int group_fd) noexcept { return write_file(group_fd, "cgroup.procs", "0"); }

void remove_control_group(const char* path) noexcept { remove_below(AT_FDCWD, path, 0); }

}  // namespace ddprun::agent

#include "agent/guard/descendants.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <span>

#include "agent/guard/proc_scan.hpp"
#include "agent/guard/process_look.hpp"
#include "common/clock.hpp"

namespace ddprun::agent {
namespace {

constexpr int kMaxProcesses = 1 << 16;  // of the machine; a later call sees the others
constexpr int kQuietScans = 2;          // one scan may miss a process that is forked meanwhile
constexpr std::chrono::milliseconds kFreezeTime{500};

struct Entry {
    pid_t pid;
    pid_t parent;
    char state;
    bool is_below;
};

using Table = std::array<Entry, kMaxProcesses>;

/// Returns all processes of the machine, in `table`, those below this one marked.
std::span<const Entry> scan(Table& table, const Spared& spared) noexcept {
    std::size_t count = 0;
    for_each_process([&](int proc, pid_t pid) {
        const ProcessLook look = look_at(proc, pid);
        if (look.parent > 0 && count < kMaxProcesses) table[count++] = {pid, look.parent, look.state, false};
    });
    const std::span<Entry> entries(table.data(), count);
    std::ranges::sort(entries, {}, &Entry::pid);
    const pid_t self = ::getpid();
    for (bool changed = true; changed;) {  // once more for a child whose pid is lower than its parent's
        changed = false;
        for (Entry& entry : entries) {
            if (entry.is_below) continue;
            const auto parent = std::ranges::lower_bound(entries, entry.parent, {}, &Entry::pid);
            const bool parent_is_below = parent != entries.end() && parent->pid == entry.parent && parent->is_below;
            const bool is_child = entry.parent == self && !spared.contains(entry.pid);
            if (!is_child && !parent_is_below) continue;
            entry.is_below = true;
            changed = true;
        }
    }
    return entries;
}

bool runs(const Entry& entry) noexcept {
    return entry.state != 'T' && entry.state != 't' && entry.state != 'Z' && entry.state != 'X';
}

/// Sends SIGSTOP to the descendants that run. Returns whether one of them is not in `previous`, the scan before: one
/// that was signalled then cannot fork any more, and shows another state only while it ends.
bool stop_running(std::span<const Entry> entries, std::span<const Entry> previous) noexcept {
    bool any_new = false;
    for (const Entry& entry : entries) {
        if (!entry.is_below || !runs(entry)) continue;
        ::kill(entry.pid, SIGSTOP);
        if (!std::ranges::binary_search(previous, entry.pid, {}, &Entry::pid)) any_new = true;
    }
    return any_new;
}

}  // namespace

bool Spared::is_older(pid_t pid) const noexcept {
    const auto end = older.begin() + older_count;
    return std::find(older.begin(), end, pid) != end || (older_session >= 0 && ::getsid(pid) == older_session);
}

bool Spared::contains(pid_t pid) const noexcept {
    return pid == keeper || is_older(pid) || is_keeper(pid, guard_program);
}

void Spared::add_older(pid_t pid) noexcept {
    if (older_count < older.size()) older[older_count++] = pid;
}

void Spared::forget(pid_t pid) noexcept {
    const auto end = older.begin() + older_count;
    older_count = static_cast<std::size_t>(std::remove(older.begin(), end, pid) - older.begin());
}

void freeze_and_kill_descendants(const Spared& spared) noexcept {
    const TimePoint give_up = Clock::now() + kFreezeTime;
    // Static, because the guard must not allocate. They take no memory until the first call.
    static std::array<Table, 2> tables;
    std::span<const Entry> entries;
    for (int quiet = 0, round = 0; quiet < kQuietScans && Clock::now() < give_up; ++round) {
        const std::span<const Entry> previous = entries;
        entries = scan(tables[static_cast<std::size_t>(round % 2)], spared);
        quiet = stop_running(entries, previous) ? 0 : quiet + 1;
    }
    for (const Entry& entry : entries) {
        if (entry.is_below) ::kill(entry.pid, SIGKILL);
    }
}

}  // namespace ddprun::agent

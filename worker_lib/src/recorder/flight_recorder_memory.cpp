// How a process takes the memory of its board: checks that it is one, and that nobody else writes it.

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "worker_lib/src/board.hpp"

namespace ddp::detail {

namespace layout = ddprun::board;

namespace {

/// Of a living process other than this one.
bool is_held(std::int64_t holder) {
    const auto number = static_cast<std::uint64_t>(holder);
    const auto pid = static_cast<pid_t>(holder < 0 ? 0 - number : number);
    return pid > 0 && pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH);
}

/// As a new one, while the agent may be reading it.
void clear(layout::Board& board) {
    for (auto& [id, operation, started, ended, waited, failure] : board.operations) {
        operation.clear();
        id.store(0, std::memory_order_relaxed);
        for (auto* mark : {&started, &ended, &waited}) mark->store(0, std::memory_order_relaxed);
        failure.store(layout::Failure::kOther, std::memory_order_relaxed);
    }
    for (auto& [group, queued, started, done, abort, left] : board.groups) {
        group.clear();
        abort.clear();
        for (auto* number : {&queued, &started, &done}) number->store(0, std::memory_order_relaxed);
        left.store(0, std::memory_order_relaxed);
    }
    board.phase.clear();
    board.hidden_groups.store(0, std::memory_order_relaxed);
    board.last_operation.store(0, std::memory_order_release);
}

/// Two processes of one worker may start at one moment; one gets it.
bool claim(layout::Board& board) {
    const std::int64_t self = ::getpid();
    std::int64_t holder = board.pid.load();
    if (is_held(holder)) return false;
    const bool anew = holder != 0 && holder != self;
    if (!board.pid.compare_exchange_strong(holder, anew ? -self : self)) return false;
    if (!anew) return true;
    clear(board);  // what the process before us has left would pass for ours
    board.pid.store(self);
    return true;
}

}  // namespace

layout::Board* take_board(int descriptor, std::string& problem) {
    struct stat status {};
    if (descriptor < 3 || ::fstat(descriptor, &status) != 0) {
        problem = "there is no such descriptor";
        return nullptr;
    }
    // Whatever else has come to this number is not touched.
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || status.st_size != sizeof(layout::Board)) {
        problem = "it is no board of this version";
        return nullptr;
    }
    void* const mapped = ::mmap(nullptr, sizeof(layout::Board), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
        problem = fmt::format("mmap: {}", std::strerror(errno));
        return nullptr;
    }
    auto* const board = static_cast<layout::Board*>(mapped);
    const bool known = board->magic == layout::kMagic && board->bytes == sizeof(layout::Board);
    if (!known || !claim(*board)) {
        problem = known ? "another process of this worker writes it" : "it is no board of this version";
        ::munmap(mapped, sizeof(layout::Board));
        return nullptr;
    }
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return board;
}

}  // namespace ddp::detail

#include "agent/board/worker_board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "common/board_layout.hpp"

namespace ddprun::agent {

Result<WorkerBoard> WorkerBoard::make() {
    UniqueFd descriptor(::memfd_create("ddprun-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!descriptor) return system_error("cannot make a board", errno);
    constexpr std::size_t kSize = sizeof(board::Board);
    const std::uint64_t head[] = {board::kMagic, kSize};
    static_assert(offsetof(board::Board, magic) == 0 && offsetof(board::Board, bytes) == sizeof head[0]);
    if (::ftruncate(descriptor.get(), kSize) != 0 ||
        ::pwrite(descriptor.get(), head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) ||
        ::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_error("cannot make a worker's board (ulimit -f holds for it too)", errno);
    }
    void* const memory = ::mmap(nullptr, kSize, PROT_READ, MAP_SHARED, descriptor.get(), 0);
    if (memory == MAP_FAILED) return system_error("cannot map a board", errno);
    return WorkerBoard(std::move(descriptor), static_cast<const board::Board*>(memory));
}

WorkerBoard::~WorkerBoard() {
    if (memory_ != nullptr) ::munmap(const_cast<board::Board*>(memory_), sizeof(board::Board));
}

WorkerBoard::WorkerBoard(WorkerBoard&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), memory_(std::exchange(other.memory_, nullptr)) {}

pid_t WorkerBoard::writer() const {
    const std::int64_t pid = memory_->pid.load();
    return pid > 0 && pid <= INT32_MAX ? static_cast<pid_t>(pid) : 0;
}

coordinator::BoardView WorkerBoard::view(std::size_t most) const { return read_board(*memory_, Clock::now(), most); }

}  // namespace ddprun::agent

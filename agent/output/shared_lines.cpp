#include "agent/output/shared_lines.hpp"

#include <sys/mman.h>

#include <utility>

namespace ddprun::agent {
namespace {

constexpr std::size_t kBytes = 2 * sizeof(std::atomic<int>);
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

UniqueFd SharedLines::make() {
    UniqueFd memory(::memfd_create("ddprun-open-lines", 0));
    return memory && ::ftruncate(memory.get(), kBytes) == 0 ? std::move(memory) : UniqueFd();
}

SharedLines::SharedLines(int fd, int self) : self_(self) {
    void* const mapped = fd < 0 ? MAP_FAILED : ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) words_ = static_cast<std::atomic<int>*>(mapped);
}

SharedLines::SharedLines(SharedLines&& other) noexcept
    : words_(std::exchange(other.words_, nullptr)), self_(other.self_) {}

SharedLines::~SharedLines() {
    if (words_ != nullptr) ::munmap(words_, kBytes);
}

SharedLine SharedLines::of(std::size_t stream) const {
    return words_ != nullptr ? SharedLine(words_ + stream, self_) : SharedLine();
}

}  // namespace ddprun::agent

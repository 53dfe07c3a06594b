#include "worker_lib/src/native/shm/arena.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddp/error.hpp"

namespace ddp::detail {

void* HeapArena::allocate(std::size_t bytes) {
    constexpr std::size_t kAlign = 128;
    const ddprun::Lock lock(mutex_);
    const std::size_t room = segment_->heap_bytes() - used_;
    if (bytes > room) {
        throw Error(ErrorCode::System,
                    fmt::format("no room for {} bytes in the arena: {} of {} are in use. Its size comes from {}", bytes,
                                used_, segment_->heap_bytes(), segment_->heap_limit()));
    }
    if (bytes > 0) segment_->populate_heap(used_, bytes);
    void* const data = segment_->heap() + used_;
    used_ += std::min(room, (bytes + kAlign - 1) / kAlign * kAlign);
    return data;
}

std::optional<std::uint64_t> HeapArena::offset_of(const void* data, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(segment_->heap());
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    if (bytes > segment_->heap_bytes() || address < begin || address - begin > segment_->heap_bytes() - bytes)
        return std::nullopt;
    return address - begin;
}

}  // namespace ddp::detail

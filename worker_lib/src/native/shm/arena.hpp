#pragma once
// HeapArena: a bump allocator on the heap of this rank's segment, which never frees. Any thread may call it.

#include <cstdint>
#include <memory>
#include <optional>

#include "common/mutex.hpp"
#include "ddp/process_group.hpp"
#include "worker_lib/src/native/shm/segment.hpp"

namespace ddp::detail {

class HeapArena final : public Arena {
public:
    explicit HeapArena(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}

    [[nodiscard]] void* allocate(std::size_t bytes) override;

    /// Returns the offset of [data, data + bytes) in the heap, or nothing if it lies outside.
    [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;

private:
    const std::shared_ptr<Segment> segment_;
    ddprun::Mutex mutex_;
    std::size_t used_ GUARDED_BY(mutex_) = 0;
};

}  // namespace ddp::detail

#pragma once
// HeapArena: the heap of a rank's own segment, handed out from front to back. Any thread.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "ddp/process_group.hpp"
#include "worker_lib/src/native/segment.hpp"

namespace ddp::detail {

class HeapArena final : public Arena {
public:
    explicit HeapArena(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}

    [[nodiscard]] void* allocate(std::size_t bytes) override;

    /// Where in the heap [data, data + bytes) lies, if it does.
    [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;

private:
    const std::shared_ptr<Segment> segment_;
    std::mutex mutex_;
    std::size_t used_ = 0;
};

}  // namespace ddp::detail

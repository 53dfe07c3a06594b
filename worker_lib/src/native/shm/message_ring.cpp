#include "worker_lib/src/native/shm/message_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ddp::detail {

namespace {

/// Bytes of a large message that are published at once, so that both ends copy at the same time. With fewer bytes they
/// would mostly exchange cache lines.
constexpr std::size_t kCopiedAtOnce = std::size_t{64} << 10;
/// A larger ring would not stay in the second-level cache.
constexpr std::size_t kMaxCapacity = std::size_t{512} << 10;

}  // namespace

RingMemory ring_at(std::byte* area, std::size_t area_bytes, int ranks, int to) {
    const std::size_t share = (area_bytes - sizeof(PostPage)) / static_cast<std::size_t>(ranks);
    const std::size_t capacity = std::min(kMaxCapacity, std::bit_floor(share - sizeof(RingControl)));
    std::byte* const begin = area + sizeof(PostPage) + static_cast<std::size_t>(to) * (sizeof(RingControl) + capacity);
    return {reinterpret_cast<RingControl*>(begin), begin + sizeof(RingControl), capacity};
}

/// Returns how many of `wanted` bytes fit now. If none fits, the receiver wakes this rank when there is room.
std::size_t RingSink::room(std::size_t wanted) {
    const auto free = [this] { return memory_.capacity - static_cast<std::size_t>(written_ - read_); };
    if (free() < wanted) read_ = memory_.control->read.load(std::memory_order_acquire);
    if (free() == 0) {
        memory_.control->starved.store(1, std::memory_order_seq_cst);
        read_ = memory_.control->read.load(std::memory_order_seq_cst);
    }
    return std::min(wanted, free());
}

void RingSink::store(std::uint64_t position, std::span<const std::byte> bytes) const {
    const auto begin = static_cast<std::size_t>(position) & (memory_.capacity - 1);
    const std::size_t first = std::min(bytes.size(), memory_.capacity - begin);
    if (first > 0) std::memcpy(memory_.bytes + begin, bytes.data(), first);
    if (first < bytes.size()) std::memcpy(memory_.bytes, bytes.data() + first, bytes.size() - first);
}

std::size_t RingSink::push(std::span<const std::byte> head, std::span<const std::byte> body) {
    std::size_t taken = 0;
    while (taken < head.size() + body.size()) {
        const std::size_t some = room(std::min(head.size() + body.size() - taken, kCopiedAtOnce));
        if (some == 0) break;
        const std::size_t of_head = taken < head.size() ? std::min(some, head.size() - taken) : 0;
        if (of_head > 0) store(written_, head.subspan(taken, of_head));
        const std::size_t body_begin = std::max(taken, head.size()) - head.size();
        store(written_ + of_head, body.subspan(body_begin, some - of_head));
        taken += some;
        written_ += some;
        memory_.control->written.store(written_, std::memory_order_release);
    }
    return taken;
}

bool RingSink::has_room(std::size_t bytes) {
    if (memory_.capacity - (written_ - read_) < bytes) read_ = memory_.control->read.load(std::memory_order_acquire);
    return memory_.capacity - (written_ - read_) >= bytes;
}

std::size_t RingSource::pull(std::span<std::byte> bytes) {
    std::size_t got = 0;
    while (got < bytes.size()) {
        if (written_ == read_) written_ = memory_.control->written.load(std::memory_order_acquire);
        const auto there = static_cast<std::size_t>(written_ - read_);
        const auto begin = static_cast<std::size_t>(read_) & (memory_.capacity - 1);
        const std::size_t some = std::min({there, bytes.size() - got, memory_.capacity - begin, kCopiedAtOnce});
        if (some == 0) break;
        std::memcpy(bytes.data() + got, memory_.bytes + begin, some);
        got += some;
        read_ += some;
        memory_.control->read.store(read_, std::memory_order_release);
    }
    pulled_ = pulled_ || got > 0;
    return got;
}

void RingSource::load(std::uint64_t position, std::span<std::byte> bytes) const {
    const auto begin = static_cast<std::size_t>(position) & (memory_.capacity - 1);
    const std::size_t first = std::min(bytes.size(), memory_.capacity - begin);
    if (first > 0) std::memcpy(bytes.data(), memory_.bytes + begin, first);
    if (first < bytes.size()) std::memcpy(bytes.data() + first, memory_.bytes, bytes.size() - first);
}

std::size_t RingSource::look(std::span<std::byte> bytes) {
    written_ = memory_.control->written.load(std::memory_order_acquire);
    const auto there = static_cast<std::size_t>(written_ - read_);
    if (there < bytes.size()) return 0;
    load(read_, bytes);
    return there;
}

void RingSource::take(std::size_t skipped, std::span<std::byte> bytes) {
    load(read_ + skipped, bytes);
    read_ += skipped + bytes.size();
    memory_.control->read.store(read_, std::memory_order_release);
    pulled_ = true;
}

bool RingSource::has_made_room() {
    if (!pulled_) return false;
    pulled_ = false;
    fence_before_wake(fence_);
    return memory_.control->starved.load(std::memory_order_seq_cst) != 0 &&
           memory_.control->starved.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace ddp::detail

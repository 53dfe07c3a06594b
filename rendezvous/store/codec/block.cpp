#include "rendezvous/store/codec/block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ddprun::store {
namespace {

/// From this size on memory comes from the kernel by the page: growth moves no bytes, and freed memory is free at once.
constexpr std::size_t kMappedBytes = std::size_t{256} << 10;
constexpr std::size_t kPageBytes = 4096;

/// Only mappings of a size in this range are kept for the next large value.
constexpr std::size_t kMinSpareBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxSpareBytes = (std::size_t{64} << 20) + kPageBytes;

bool mapped(std::size_t bytes) { return bytes >= kMappedBytes; }
std::size_t rounded(std::size_t bytes) {
    return mapped(bytes) ? (bytes + kPageBytes - 1) / kPageBytes * kPageBytes : bytes;
}

void* checked(void* memory) {
    if (memory == nullptr || memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
}

void* take(std::size_t bytes) {
    if (!mapped(bytes)) return checked(std::malloc(bytes));
    return checked(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

void give_back(void* memory, std::size_t bytes) {
    if (mapped(bytes)) {
        ::munmap(memory, bytes);
    } else {
        std::free(memory);
    }
}

}  // namespace

bool SparePages::keep(void* memory, std::size_t bytes) noexcept {
    if (bytes < kMinSpareBytes || bytes > kMaxSpareBytes || bytes < bytes_) return false;
    drop();
    memory_ = memory;
    bytes_ = bytes;
    ++times_kept_;
    return true;
}

void SparePages::drop() noexcept {
    if (const std::size_t bytes = bytes_; bytes > 0) ::munmap(take(), bytes);
}

Block::Block(std::size_t capacity, BlockMemory* memory) {
    const std::size_t bytes = rounded(sizeof(Header) + capacity);
    header_ = new (take(bytes)) Header{0, bytes - sizeof(Header), memory, 1};
    if (memory) memory->bytes += bytes;
}

void Block::free() noexcept {
    const std::size_t bytes = sizeof(Header) + header_->capacity;
    BlockMemory* const memory = header_->memory;
    if (memory) memory->bytes -= bytes;
    if (memory && mapped(bytes) && memory->spare.keep(header_, bytes)) return;
    give_back(header_, bytes);
}

void Block::append(std::string_view more) {
    if (capacity() - size() < more.size()) reserve(std::max(2 * size(), size() + more.size()));
    std::memcpy(room().data(), more.data(), more.size());
    commit(more.size());
}

void Block::reserve(std::size_t capacity) {
    assert(header_ && !shared() && capacity >= size());
    const std::size_t before = sizeof(Header) + header_->capacity;
    const std::size_t after = rounded(sizeof(Header) + capacity);
    if (after == before) return;
    void* memory = nullptr;
    if (mapped(before) && mapped(after)) {
        memory = checked(::mremap(header_, before, after, MREMAP_MAYMOVE));
    } else if (!mapped(before) && !mapped(after)) {
        memory = checked(std::realloc(header_, after));
    } else {
        memory = take(after);
        std::memcpy(memory, header_, sizeof(Header) + size());
        give_back(header_, before);
    }
    header_ = static_cast<Header*>(memory);
    header_->capacity = after - sizeof(Header);
    if (header_->memory) header_->memory->bytes += after - before;
}

void Block::grow(std::size_t max) {
    assert(header_ && !shared());
    const std::size_t before = sizeof(Header) + header_->capacity;
    BlockMemory* const memory = header_->memory;
    // The first few bytes get none, so that a client that only announces a large value does not get the pages.
    const std::size_t spare = memory && mapped(before) ? memory->spare.fitting(sizeof(Header) + max) : 0;
    if (spare <= before) return reserve(std::min(max, 2 * capacity()));
    void* const larger = memory->spare.take();
    std::memcpy(larger, header_, sizeof(Header) + size());
    give_back(header_, before);
    header_ = static_cast<Header*>(larger);
    header_->capacity = spare - sizeof(Header);
    memory->bytes += spare - before;
}

void Block::trim() {
    if (capacity() - size() > size() / 16) reserve(size());
}

}  // namespace ddprun::store

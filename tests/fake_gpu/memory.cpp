#include "tests/fake_gpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

namespace ddp::fake {
namespace {

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer knows the bounds and the end of memory of the heap only.
constexpr std::align_val_t kAlignment{256};  // that of cuMemAlloc
void* map(std::size_t bytes) { return ::operator new(bytes, kAlignment, std::nothrow); }
void unmap(void* start, std::size_t) { ::operator delete(start, kAlignment); }
#else
void* map(std::size_t bytes) {
    void* const start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? nullptr : start;
}
void unmap(void* start, std::size_t bytes) { ::munmap(start, bytes); }
#endif

}  // namespace

std::string Block::text() const {
    constexpr const char* kKinds[] = {"device memory", "pinned memory", "registered memory"};
    char text[96];
    std::snprintf(text, sizeof text, "%zu bytes of %s at %p (device %d)", bytes, kKinds[static_cast<int>(kind)],
                  static_cast<void*>(start), device);
    return text;
}

MemoryTable& MemoryTable::instance() {
    static auto& table = *new MemoryTable;  // never destroyed: streams may run when the process ends
    return table;
}

Block* MemoryTable::allocate(Block::Kind kind, int device, std::size_t bytes) {
    void* const start = map(bytes);
    if (start == nullptr) return nullptr;
    std::memset(start, 0xAB, bytes);  // memory of a device starts as anything
    const std::lock_guard lock(mutex_);
    return add(kind, device, start, bytes);
}

Block* MemoryTable::add_registered(int device, void* start, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto next = blocks_.lower_bound(number(start));
    const bool overlaps =
        find(number(start)) != nullptr || (next != blocks_.end() && next->first < number(start) + bytes);
    return overlaps ? nullptr : add(Block::Kind::Registered, device, start, bytes);
}

Block* MemoryTable::at(const void* start, Block::Kind kind) const {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(number(start));
    return found == blocks_.end() || found->second->kind != kind ? nullptr : found->second;
}

Block* MemoryTable::containing(const void* address) const {
    const std::lock_guard lock(mutex_);
    return find(number(address));
}

std::vector<Block*> MemoryTable::named_in(std::span<const std::byte> bytes) const {
    std::vector<Block*> found;
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i + sizeof(std::uintptr_t) <= bytes.size(); i += sizeof(std::uintptr_t)) {
        std::uintptr_t word = 0;
        std::memcpy(&word, &bytes[i], sizeof word);
        Block* const block = find(word);
        if (block != nullptr && std::ranges::find(found, block) == found.end()) found.push_back(block);
    }
    return found;
}

std::size_t MemoryTable::allocated_on(int device) const {
    std::size_t bytes = 0;
    const std::lock_guard lock(mutex_);
    for (const auto& [start, block] : blocks_)
        if (block->kind == Block::Kind::Device && block->device == device) bytes += block->bytes;
    return bytes;
}

void MemoryTable::remove(Block& block) {
    {
        const std::lock_guard lock(mutex_);
        blocks_.erase(number(block.start));
        removed_.push_back(&block);
    }
    if (block.kind != Block::Kind::Registered) unmap(block.start, block.bytes);
}

void MemoryTable::forget(int device) {
    const std::lock_guard lock(mutex_);
    for (auto each = blocks_.begin(); each != blocks_.end();) {
        if (each->second->device != device) {
            ++each;
            continue;
        }
        removed_.push_back(each->second);
        each = blocks_.erase(each);
    }
}

Block* MemoryTable::find(std::uintptr_t address) const {
    auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return nullptr;
    Block* const block = std::prev(next)->second;
    return address - number(block->start) < block->bytes ? block : nullptr;
}

Block* MemoryTable::add(Block::Kind kind, int device, void* start, std::size_t bytes) {
    auto* const block =
        new Block{.kind = kind, .device = device, .start = static_cast<std::byte*>(start), .bytes = bytes};
    blocks_[number(start)] = block;
    return block;
}

}  // namespace ddp::fake

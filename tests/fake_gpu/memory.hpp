#pragma once
// MemoryTable: the memory that the driver knows: of devices, pinned, registered. Host threads only; a stream's task may
// only count itself out of a block.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::fake {

/// A block of memory. Blocks are never deleted, because a task may end after its block was freed.
struct Block {
    enum class Kind { Device, Pinned, Registered };
    Kind kind;
    int device;  ///< the ordinal of the context in which it was made
    std::byte* start;
    std::size_t bytes;
    // Relaxed, so that they order no threads.
    std::atomic<int> tasks_in_flight = 0;
    std::atomic<const char*> last_user = nullptr;  ///< the call that enqueued a task with it

    [[nodiscard]] std::string text() const;
};

class MemoryTable {
public:
    static MemoryTable& instance();

    /// Returns new memory that is filled with the byte 0xAB, aligned to a page, or nullptr if there is none.
    Block* allocate(Block::Kind kind, int device, std::size_t bytes);
    /// Adds memory of the program. Returns nullptr if a part of it is known already.
    Block* add_registered(int device, void* start, std::size_t bytes);
    /// Returns the block of one kind that starts there, or nullptr.
    [[nodiscard]] Block* at(const void* start, Block::Kind kind) const;
    /// Returns the block that contains the address, or nullptr.
    [[nodiscard]] Block* containing(const void* address) const;
    /// Returns the bytes of a device's memory that are allocated.
    [[nodiscard]] std::size_t allocated_on(int device) const;
    /// Returns the blocks into which pointers among the bytes lead, without repetition.
    [[nodiscard]] std::vector<Block*> named_in(std::span<const std::byte> bytes) const;
    /// Forgets a block; the memory of its own is unmapped.
    void remove(Block& block);
    /// Forgets the blocks of a device, which keep their memory: streams may still use it.
    void forget(int device);

private:
    [[nodiscard]] Block* find(std::uintptr_t address) const;
    Block* add(Block::Kind kind, int device, void* start, std::size_t bytes);

    mutable std::mutex mutex_;
    std::map<std::uintptr_t, Block*> blocks_;  // by the start
    std::vector<Block*> removed_;              // kept reachable for LeakSanitizer
};

}  // namespace ddp::fake

#pragma once
// Block: a large byte string that the store, and every reply that carries it, share without copying it. One owner
// writes it; then it is only read. Reference counts are not atomic, because all owners live on one thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace ddprun::store {

/// Values of at least this size are kept in a Block; smaller ones are cheaper to copy.
inline constexpr std::size_t kLargeBytes = std::size_t{16} << 10;

/// SparePages: keeps the memory of the large block that was freed last for the next one, because clearing fresh pages
/// is a large part of the cost of receiving a large value. Used on the store's thread.
class SparePages {
public:
    SparePages() = default;
    ~SparePages() { drop(); }
    SparePages(const SparePages&) = delete;
    SparePages& operator=(const SparePages&) = delete;

    /// Takes the mapping, unless its size is out of range or below that of the kept one. Returns whether it did.
    [[nodiscard]] bool keep(void* memory, std::size_t bytes) noexcept;
    /// Returns the size of the mapping if it suits a block of `bytes`; else 0.
    [[nodiscard]] std::size_t fitting(std::size_t bytes) const noexcept {
        return bytes <= bytes_ && bytes > bytes_ / 2 ? bytes_ : 0;
    }
    [[nodiscard]] void* take() noexcept {
        bytes_ = 0;
        return std::exchange(memory_, nullptr);
    }
    /// Gives the mapping back to the kernel.
    void drop() noexcept;
    [[nodiscard]] bool empty() const noexcept { return memory_ == nullptr; }
    /// Returns how often keep() has taken a mapping.
    [[nodiscard]] std::uint64_t times_kept() const noexcept { return times_kept_; }

private:
    void* memory_ = nullptr;
    std::size_t bytes_ = 0;
    std::uint64_t times_kept_ = 0;
};

/// The byte count and the spare pages that all blocks of one store share.
struct BlockMemory {
    std::size_t bytes = 0;  ///< of all blocks; without the spare pages
    SparePages spare;
};

class Block {
public:
    Block() noexcept = default;
    /// Makes an empty block with room for `capacity` bytes. `memory`, which outlives it, counts it (null: it is not
    /// counted). Throws std::bad_alloc, as every growth does.
    Block(std::size_t capacity, BlockMemory* memory);
    Block(const Block& other) noexcept : header_(other.header_) {
        if (header_) ++header_->owners;
    }
    Block(Block&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
    Block& operator=(Block other) noexcept {
        std::swap(header_, other.header_);
        return *this;
    }
    ~Block() {
        if (header_ && --header_->owners == 0) free();
    }

    explicit operator bool() const noexcept { return header_ != nullptr; }
    [[nodiscard]] std::string_view view() const noexcept {
        return header_ ? std::string_view(bytes(), header_->size) : std::string_view{};
    }
    [[nodiscard]] std::size_t size() const noexcept { return header_ ? header_->size : 0; }
    [[nodiscard]] std::size_t capacity() const noexcept { return header_ ? header_->capacity : 0; }
    /// Returns its share of BlockMemory::bytes.
    [[nodiscard]] std::size_t held_bytes() const noexcept { return header_ ? sizeof(Header) + header_->capacity : 0; }
    [[nodiscard]] bool shared() const noexcept { return header_ && header_->owners > 1; }

    // The rest is for a block with one owner.

    /// Returns the memory for the next bytes. Then commit() those that were written.
    [[nodiscard]] std::span<char> room() noexcept { return {bytes() + size(), capacity() - size()}; }
    void commit(std::size_t bytes) noexcept { header_->size += bytes; }
    void append(std::string_view more);
    /// Changes the capacity, to at least size(). Large blocks are remapped, not copied.
    void reserve(std::size_t capacity);
    /// Doubles the capacity, up to `max` bytes rounded up to a page. A large block takes spare pages for all of `max`
    /// instead, if there are any that fit.
    void grow(std::size_t max);
    /// Gives back unused room if there is much.
    void trim();

    // The block as a plain pointer, for a table that stores it among bytes. adopt() takes the ownership that release()
    // gave up.
    [[nodiscard]] void* release() noexcept { return std::exchange(header_, nullptr); }
    [[nodiscard]] static Block adopt(void* released) noexcept {
        Block block;
        block.header_ = static_cast<Header*>(released);
        return block;
    }

private:
    struct Header {
        std::size_t size;
        std::size_t capacity;
        BlockMemory* memory;
        std::uint32_t owners;
    };
    [[nodiscard]] char* bytes() const noexcept { return reinterpret_cast<char*>(header_ + 1); }
    void free() noexcept;

    Header* header_ = nullptr;
};

}  // namespace ddprun::store

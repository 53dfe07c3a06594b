#pragma once
// Table: owns the keys of a store and their values. Each entry is one allocation; large values are Blocks. It grows and
// shrinks by one bucket at a time (linear hashing: Litwin 1980), so that no request pays for moving all the others.
// Pure; single owner.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "rendezvous/store/codec/block.hpp"
#include "rendezvous/store/codec/hash.hpp"

namespace ddprun::store {

class Table {
public:
    /// A key with its value. Their bytes follow the entry in memory: the key, then the value or a pointer to its Block.
    class Entry {
    public:
        [[nodiscard]] std::string_view key() const { return {bytes(), key_bytes_}; }
        [[nodiscard]] std::string_view value() const;
        /// Returns the Block that holds the value, so that a reply can share it. Returns an empty Block if the value is
        /// small and lies in the entry.
        [[nodiscard]] Block block() const;

    private:
        friend class Table;
        static constexpr std::uint32_t kInBlock = ~std::uint32_t{0};
        [[nodiscard]] const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
        [[nodiscard]] char* value_bytes() { return reinterpret_cast<char*>(this + 1) + key_bytes_; }
        [[nodiscard]] void* block_pointer() const;
        void set_block_pointer(void* pointer) { std::memcpy(value_bytes(), &pointer, sizeof pointer); }

        /// Releases the memory that the value holds beside the entry.
        void drop_value() {
            if (value_bytes_ == kInBlock) [[maybe_unused]]
                const Block released = Block::adopt(block_pointer());
        }

        Entry* next_;
        std::uint32_t hash_;
        std::uint32_t key_bytes_;
        std::uint32_t value_bytes_;  ///< kInBlock: the value is a Block
        std::uint32_t room_bytes_;   ///< for a value, after the key
    };

    /// The position of a key, or the position where it would be inserted. Valid until the next change of the table.
    class Slot {
    public:
        /// Returns null when the key is missing.
        [[nodiscard]] const Entry* entry() const { return *link_; }

    private:
        friend class Table;
        Slot(std::uint32_t hash, Entry** link) : hash_(hash), link_(link) {}
        std::uint32_t hash_;
        Entry** link_;
    };

    explicit Table(const HashSeed& seed);
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    [[nodiscard]] Slot locate(std::string_view key);
    /// Returns null when the key is missing.
    [[nodiscard]] const Entry* find(std::string_view key) const {
        return const_cast<Table*>(this)->locate(key).entry();
    }
    // These change nothing when they throw std::bad_alloc.
    /// Stores a copy of a value below kLargeBytes.
    void assign(Slot slot, std::string_view key, std::string_view value);
    /// Stores a large value, which is not changed afterwards.
    void assign(Slot slot, std::string_view key, Block value);
    /// Appends to a value in a Block that is not shared. Otherwise does nothing and returns false.
    [[nodiscard]] bool append_in_place(Slot slot, std::string_view more);
    void erase(Slot slot);

    [[nodiscard]] std::size_t size() const { return size_; }
    template <typename Visit>
    void for_each(Visit visit) const {
        for (const Entry* entry : buckets_) {
            for (; entry != nullptr; entry = entry->next_) visit(*entry);
        }
    }

private:
    /// Returns the entry at `slot`, new or with its value released, with room for `value_bytes`.
    Entry* make_room(Slot slot, std::string_view key, std::size_t value_bytes);
    [[nodiscard]] std::size_t bucket_of(std::uint32_t hash) const;
    void grow();
    void shrink();

    HashSeed seed_;
    std::vector<Entry*> buckets_;
    std::size_t size_ = 0;
};

}  // namespace ddprun::store

#include "rendezvous/store/engine/table.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <new>

namespace ddprun::store {
namespace {

constexpr std::size_t kMinBuckets = 16;
/// The granularity of malloc's blocks, and its overhead in each: room up to the next multiple costs nothing.
constexpr std::size_t kGrain = 16;
constexpr std::size_t kMallocBytes = 8;

std::size_t whole_grains(std::size_t bytes) {
    return (bytes + kMallocBytes + kGrain - 1) / kGrain * kGrain - kMallocBytes;
}

}  // namespace

void* Table::Entry::block_pointer() const {
    void* pointer = nullptr;
    std::memcpy(&pointer, bytes() + key_bytes_, sizeof pointer);
    return pointer;
}

Block Table::Entry::block() const {
    if (value_bytes_ != kInBlock) return {};
    Block mine = Block::adopt(block_pointer());
    Block copy = mine;
    (void)mine.release();
    return copy;
}

std::string_view Table::Entry::value() const {
    if (value_bytes_ == kInBlock) return block().view();
    return {bytes() + key_bytes_, value_bytes_};
}

Table::Table(const HashSeed& seed) : seed_(seed), buckets_(kMinBuckets) {}

Table::~Table() {
    for (Entry*& first : buckets_) {
        while (first != nullptr) {
            Entry* const entry = first;
            entry->drop_value();
            first = entry->next_;
            std::free(entry);
        }
    }
}

std::size_t Table::bucket_of(std::uint32_t hash) const {
    // Between two powers of two, the buckets up to size - 2^n are split already.
    const std::size_t half = std::bit_floor(buckets_.size());
    const std::size_t bucket = hash & (2 * half - 1);
    return bucket < buckets_.size() ? bucket : hash & (half - 1);
}

Table::Slot Table::locate(std::string_view key) {
    const auto hash = static_cast<std::uint32_t>(hash_of(seed_, key));
    Entry** link = &buckets_[bucket_of(hash)];
    while (*link != nullptr && ((*link)->hash_ != hash || (*link)->key() != key)) link = &(*link)->next_;
    return {hash, link};
}

Table::Entry* Table::make_room(Slot slot, std::string_view key, std::size_t value_bytes) {
    Entry* entry = *slot.link_;
    const bool fits = entry != nullptr && entry->room_bytes_ >= value_bytes &&
                      entry->room_bytes_ <= 2 * value_bytes + 4 * kGrain;  // otherwise memory is given back
    if (!fits) {
        const std::size_t bytes = whole_grains(sizeof(Entry) + key.size() + value_bytes);
        auto* const made = static_cast<Entry*>(std::malloc(bytes));
        if (made == nullptr) throw std::bad_alloc();
        made->next_ = entry ? entry->next_ : nullptr;
        made->hash_ = slot.hash_;
        made->key_bytes_ = static_cast<std::uint32_t>(key.size());
        made->room_bytes_ = static_cast<std::uint32_t>(bytes - sizeof(Entry) - key.size());
        if (!key.empty()) std::memcpy(made + 1, key.data(), key.size());
        *slot.link_ = made;
    }
    if (entry != nullptr) entry->drop_value();
    if (entry != nullptr && !fits) std::free(entry);
    if (entry == nullptr) ++size_;
    return *slot.link_;
}

void Table::assign(Slot slot, std::string_view key, std::string_view value) {
    assert(value.size() < kLargeBytes);
    const bool fresh = slot.entry() == nullptr;
    Entry* const entry = make_room(slot, key, value.size());
    if (!value.empty()) std::memmove(entry->value_bytes(), value.data(), value.size());
    entry->value_bytes_ = static_cast<std::uint32_t>(value.size());
    if (fresh) grow();
}

void Table::assign(Slot slot, std::string_view key, Block value) {
    assert(value.size() >= kLargeBytes);
    const bool fresh = slot.entry() == nullptr;
    Entry* const entry = make_room(slot, key, sizeof(void*));
    entry->set_block_pointer(value.release());
    entry->value_bytes_ = Entry::kInBlock;
    if (fresh) grow();
}

bool Table::append_in_place(Slot slot, std::string_view more) {
    Entry* const entry = *slot.link_;
    if (entry->value_bytes_ != Entry::kInBlock) return false;
    Block block = Block::adopt(entry->block_pointer());
    const bool shared = block.shared();
    try {
        if (!shared) block.append(more);
    } catch (...) {
        entry->set_block_pointer(block.release());
        throw;
    }
    entry->set_block_pointer(block.release());  // it may have moved
    return !shared;
}

void Table::erase(Slot slot) {
    Entry* const entry = *slot.link_;
    assert(entry != nullptr);
    *slot.link_ = entry->next_;
    entry->drop_value();
    std::free(entry);
    --size_;
    shrink();
}

void Table::grow() {
    if (size_ <= buckets_.size()) return;
    if (buckets_.size() == buckets_.capacity()) {
        try {
            buckets_.reserve(2 * buckets_.capacity());
        } catch (const std::bad_alloc&) {
            return;  // the chains become longer; the next insertion tries again
        }
    }
    const std::size_t added = buckets_.size();
    const std::size_t half = std::bit_floor(added);
    buckets_.push_back(nullptr);
    Entry** stays = &buckets_[added - half];
    Entry** moves = &buckets_[added];
    while (*stays != nullptr) {
        Entry* const entry = *stays;
        if ((entry->hash_ & (2 * half - 1)) == added) {
            *stays = entry->next_;
            entry->next_ = nullptr;
            *moves = entry;
            moves = &entry->next_;
        } else {
            stays = &entry->next_;
        }
    }
}

void Table::shrink() {
    // Removes two buckets for each deletion, until there are twice as many buckets as keys.
    for (int i = 0; i < 2 && buckets_.size() > std::max(2 * size_, kMinBuckets); ++i) {
        const std::size_t last = buckets_.size() - 1;
        Entry** link = &buckets_[last - std::bit_floor(last)];
        while (*link != nullptr) link = &(*link)->next_;
        *link = buckets_[last];
        buckets_.pop_back();
    }
    if (buckets_.capacity() > 4 * buckets_.size() && buckets_.capacity() > 1024) {
        try {
            buckets_.shrink_to_fit();
        } catch (const std::bad_alloc&) {  // it stays as large as it was
        }
    }
}

}  // namespace ddprun::store

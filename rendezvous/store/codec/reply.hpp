#pragma once
// Reply: owns the bytes to be sent to one peer, in order. Small values are copied, large ones are referenced. Pure;
// single owner.

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/codec/block.hpp"
#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {

class Reply {
public:
    /// Makes room for `more` bytes that are about to be copied in.
    void reserve(std::size_t more) { bytes_.reserve(bytes_.size() + more); }
    void byte(char value) { bytes_ += value; }
    template <std::integral T>
    void number(T value) {
        wire::append_number(bytes_, value);
    }
    /// Appends the length of `value`, then a copy of it.
    void bytes(std::string_view value) { wire::append_bytes(bytes_, value); }
    /// Appends the length of `value`, then a reference to it.
    void bytes(const Block& value) {
        number<std::uint64_t>(value.size());
        blocks_.push_back({bytes_.size(), value});
        block_bytes_ += value.size();
    }

    /// Returns the number of bytes still to be sent.
    [[nodiscard]] std::size_t size() const { return bytes_.size() - sent_bytes_ + block_bytes_ - sent_of_block_; }
    [[nodiscard]] bool empty() const { return size() == 0; }
    /// Returns whether a large value is still to be sent.
    [[nodiscard]] bool large() const { return block_bytes_ > 0; }
    /// Fills `into` with the beginning of the bytes still to be sent, about `max_bytes`. Returns the pieces that were
    /// filled.
    [[nodiscard]] std::span<iovec> next(std::span<iovec> into, std::size_t max_bytes) const;
    /// Removes the first `bytes`, which have been sent.
    void sent(std::size_t bytes);
    /// Removes everything, and keeps a little memory for the next reply.
    void clear();
    /// Removes everything, and keeps no memory.
    void release();

    /// Returns the bytes of memory that it holds, without those of the blocks.
    [[nodiscard]] std::size_t held_bytes() const {
        return (bytes_.capacity() > kInside ? bytes_.capacity() : 0) + blocks_.capacity() * sizeof(Reference);
    }
    [[nodiscard]] std::string text() const;  ///< the bytes still to be sent, in one piece, for tests

private:
    struct Reference {
        std::size_t at;  ///< the block comes before this byte of bytes_
        Block block;
    };
    static constexpr std::size_t kInside = 15;  ///< std::string's room without an allocation

    std::string bytes_;
    std::size_t sent_bytes_ = 0;  ///< of bytes_
    std::vector<Reference> blocks_;
    std::size_t sent_blocks_ = 0;    ///< of blocks_
    std::size_t sent_of_block_ = 0;  ///< of the first block that is not sent whole
    std::size_t block_bytes_ = 0;    ///< of the blocks that are not sent whole
};

}  // namespace ddprun::store

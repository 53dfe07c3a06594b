#pragma once
// Reply: bytes on their way to one peer, in order. Small ones are copied in; large values are referred to. Pure.

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/block.hpp"
#include "rendezvous/store/wire.hpp"

namespace ddprun::store {

class Reply {
public:
    /// So many bytes are about to be copied in.
    void reserve(std::size_t more) { bytes_.reserve(bytes_.size() + more); }
    void byte(char value) { bytes_ += value; }
    template <std::integral T>
    void number(T value) {
        wire::append_number(bytes_, value);
    }
    /// Its length, then a copy of it.
    void bytes(std::string_view value) { wire::append_bytes(bytes_, value); }
    /// Its length, then the block itself.
    void bytes(const Block& value) {
        number<std::uint64_t>(value.size());
        blocks_.push_back({bytes_.size(), value});
        block_bytes_ += value.size();
    }

    /// What is still to be sent.
    [[nodiscard]] std::size_t size() const { return bytes_.size() - sent_bytes_ + block_bytes_ - sent_of_block_; }
    [[nodiscard]] bool empty() const { return size() == 0; }
    /// Whether a large value is among it.
    [[nodiscard]] bool large() const { return block_bytes_ > 0; }
    /// The beginning of what is still to be sent, in at most into.size() pieces and about `most_bytes`; the pieces that
    /// were filled.
    [[nodiscard]] std::span<iovec> next(std::span<iovec> into, std::size_t most_bytes) const;
    /// So much of it has been sent.
    void sent(std::size_t bytes);
    /// Forgets everything, and keeps a little memory for next time.
    void clear();
    /// Forgets everything, and keeps no memory.
    void release();

    /// The memory of its copied bytes.
    [[nodiscard]] std::size_t held_bytes() const {
        return (bytes_.capacity() > kInside ? bytes_.capacity() : 0) + blocks_.capacity() * sizeof(Reference);
    }
    [[nodiscard]] std::string text() const;  ///< what is still to be sent, in one piece, for tests

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

#include "rendezvous/store/codec/reply.hpp"

#include <algorithm>
#include <array>

namespace ddprun::store {
namespace {

/// The memory that is kept for the next reply when all bytes are sent.
constexpr std::size_t kKeptReplyBytes = std::size_t{256} << 10;

}  // namespace

std::span<iovec> Reply::next(std::span<iovec> into, std::size_t max_bytes) const {
    std::size_t pieces = 0;
    std::size_t taken = 0;
    const auto add = [&](const char* data, std::size_t size) {
        size = std::min(size, max_bytes - taken);
        if (size == 0) return;
        into[pieces++] = {const_cast<char*>(data), size};
        taken += size;
    };
    std::size_t at = sent_bytes_;
    std::size_t skipped = sent_of_block_;
    for (std::size_t i = sent_blocks_; i < blocks_.size() && taken < max_bytes && pieces + 2 < into.size(); ++i) {
        const auto& [before, block] = blocks_[i];
        add(bytes_.data() + at, before - at);
        at = before;
        add(block.view().data() + skipped, block.size() - skipped);
        skipped = 0;
        if (i + 1 == blocks_.size()) add(bytes_.data() + at, bytes_.size() - at);
    }
    if (sent_blocks_ == blocks_.size()) add(bytes_.data() + at, bytes_.size() - at);
    return into.first(pieces);
}

void Reply::sent(std::size_t bytes) {
    while (bytes > 0 && sent_blocks_ < blocks_.size()) {
        Reference& next = blocks_[sent_blocks_];
        const std::size_t before = std::min(bytes, next.at - sent_bytes_);
        sent_bytes_ += before;
        bytes -= before;
        const std::size_t of_block = std::min(bytes, next.block.size() - sent_of_block_);
        sent_of_block_ += of_block;
        bytes -= of_block;
        if (sent_bytes_ < next.at || sent_of_block_ < next.block.size()) return;
        block_bytes_ -= next.block.size();
        sent_of_block_ = 0;
        next.block = {};  // its memory is freed by its last reader, which need not be this reply
        ++sent_blocks_;
    }
    sent_bytes_ += bytes;
}

void Reply::clear() {
    bytes_.clear();
    if (bytes_.capacity() > kKeptReplyBytes) std::string().swap(bytes_);  // an assignment would keep its memory
    sent_bytes_ = 0;
    blocks_.clear();
    if (blocks_.capacity() * sizeof(Reference) > kKeptReplyBytes) blocks_ = std::vector<Reference>();
    sent_blocks_ = 0;
    sent_of_block_ = 0;
    block_bytes_ = 0;
}

void Reply::release() {
    clear();
    std::string().swap(bytes_);
    std::vector<Reference>().swap(blocks_);
}

std::string Reply::text() const {
    std::string out;
    Reply rest = *this;
    while (!rest.empty()) {
        std::array<iovec, 8> pieces{};
        std::size_t taken = 0;
        for (const iovec& piece : rest.next(pieces, rest.size())) {
            out.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
            taken += piece.iov_len;
        }
        rest.sent(taken);
    }
    return out;
}

}  // namespace ddprun::store

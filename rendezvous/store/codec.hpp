#pragma once
// Decoder: the bytes of one connection become requests, whatever pieces they arrive in. Pure: no socket, no clock, no
// log. Its memory follows the bytes that came, never the lengths they announce. One for each connection, single owner.
// Bytes are copied only when a request arrives in several pieces; a large value is then received where it stays.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "rendezvous/store/block.hpp"
#include "rendezvous/store/limits.hpp"
#include "rendezvous/store/request.hpp"

namespace ddprun::store {

class Decoder {
public:
    /// The dialect is settled by the first bytes: modern if they are VALIDATE, otherwise `options.older_dialect`.
    /// `options` outlives the decoder; `*block_memory` too, which counts its blocks (null: nobody does).
    explicit Decoder(const Options& options, BlockMemory* block_memory = nullptr)
        : options_(&options), block_memory_(block_memory) {}
    explicit Decoder(const Options&& options, BlockMemory* block_memory = nullptr) = delete;

    /// Takes the next bytes of the stream. They stay where they are until next() has returned nothing, or keep() was
    /// called. Ends the validity of every view handed out before.
    void feed(std::string_view bytes);
    /// Copies what is not decoded yet: the bytes last fed are about to go.
    void keep();

    /// The next complete request, or the next part of it: Request::has_more_keys. Nothing when more bytes are needed.
    /// VALIDATE is taken in silently. The request's views hold until the next call of feed(), keep() or next(). Errors:
    /// kMalformed (unknown code, wrong first bytes) and kLimit; the connection is to be closed, and every later call
    /// fails alike.
    [[nodiscard]] Result<std::optional<Request>> next();

    /// Where the next bytes of a large value go without a copy; empty when it is not in the middle of one. Write there
    /// and say received(), or feed() as always.
    [[nodiscard]] std::span<char> room();
    void received(std::size_t bytes) { block_.commit(bytes); }

    /// Whether it is in the middle of one.
    [[nodiscard]] bool receiving() const { return block_size_ != 0; }

    /// Whether a request has begun and is not complete.
    [[nodiscard]] bool inside_request() const { return begin_ < data().size(); }
    /// What it holds in memory beside its blocks.
    [[nodiscard]] std::size_t held_bytes() const {
        return (buffer_.capacity() > kInside ? buffer_.capacity() : 0) + pieces_.capacity() * sizeof(Piece) +
               (keys_.capacity() + values_.capacity()) * sizeof(std::string_view);
    }

private:
    enum class Scan : std::uint8_t { kDone, kMore, kFailed };
    enum class Dialect : std::uint8_t { kUnsettled, kModern, kV1_13, kV2_1 };
    struct Piece {
        std::size_t begin;  ///< from the first byte of the request
        std::size_t size;
    };
    static constexpr std::size_t kInside = 15;  ///< std::string's room without an allocation

    Scan settle_dialect();
    Scan scan();
    Scan scan_code();
    Scan scan_field(char field);
    Scan scan_list(std::size_t strings_per_item);
    Scan scan_string(std::size_t limit_bytes, std::string_view what, Piece& piece);
    Scan scan_value();
    template <typename T>
    Scan scan_number(T& number);
    Scan fail(Errc code, std::string message);
    [[nodiscard]] Request finish();
    /// Whether further keys of the request are left for the next one.
    [[nodiscard]] bool take_keys(std::size_t strings_per_item);
    void give_memory_back();

    [[nodiscard]] std::string_view data() const { return copied_ ? std::string_view(buffer_) : fed_; }
    [[nodiscard]] std::string_view view(const Piece& piece) const {
        return data().substr(begin_ + piece.begin, piece.size);
    }
    [[nodiscard]] std::size_t available() const { return data().size() - begin_ - offset_; }
    [[nodiscard]] const char* position() const { return data().data() + begin_ + offset_; }

    const Options* options_;
    BlockMemory* block_memory_;

    // The bytes at hand are those fed last, or a copy of what they left followed by them.
    std::string_view fed_;
    std::string buffer_;
    std::size_t begin_ = 0;  ///< of the request that is being scanned, in data()
    bool copied_ = false;

    Dialect dialect_ = Dialect::kUnsettled;
    RequestKind kind_ = RequestKind::kValidate;  ///< VALIDATE stands for "its code is not read yet"

    // How far that request is scanned. It goes on from here when more has come, so that many small pieces cost no more
    // than one large one.
    std::uint8_t field_ = 0;
    std::size_t offset_ = 0;  ///< from begin_
    Piece key_{};
    Piece expected_{};
    Piece value_{};
    std::int64_t number_ = 0;
    std::optional<std::size_t> strings_left_;  ///< of the list that is being scanned
    std::vector<Piece> pieces_;                ///< of lists
    std::size_t taken_pieces_ = 0;             ///< of them, by the parts of the request that next() has returned
    std::size_t block_size_ = 0;               ///< of a large value in several pieces; it grows in block_
    Block block_;

    std::vector<std::string_view> keys_;  ///< what the last request's spans point to
    std::vector<std::string_view> values_;
    Block value_block_;  ///< what the last request's block points to
    std::optional<Error> error_;
};

}  // namespace ddprun::store

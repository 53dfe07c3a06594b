#pragma once
// Decoder: turns the bytes of one connection into requests, however the bytes are split. Its connection owns it. Pure:
// no socket, no clock, no log. Its memory grows with the bytes that have arrived, never with the lengths that they
// announce. Bytes are copied only when a request arrives in several pieces; a large value is then received into its
// final memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "rendezvous/store/codec/block.hpp"
#include "rendezvous/store/codec/limits.hpp"
#include "rendezvous/store/codec/request.hpp"

namespace ddprun::store {

/// Returns whether a connection may begin with this byte, in any dialect.
[[nodiscard]] bool may_begin_with(char first);

class Decoder {
public:
    /// The first bytes settle the dialect: modern if they are VALIDATE, otherwise `options.older_dialect`. The
    /// caller keeps `options` and `*block_memory` longer than the decoder. `*block_memory` counts the decoder's blocks;
    /// null: they are not counted.
    explicit Decoder(const Options& options, BlockMemory* block_memory = nullptr)
        : options_(&options), block_memory_(block_memory) {}
    explicit Decoder(const Options&& options, BlockMemory* block_memory = nullptr) = delete;

    /// Takes the next bytes of the stream. The caller keeps them in place until next() has returned nothing, or keep()
    /// was called. Invalidates every view handed out before.
    void feed(std::string_view bytes);
    /// Copies the bytes that are not decoded yet, so that the caller may reuse the memory of those last fed.
    void keep();

    /// Returns the next complete request, or the next part of it (Request::has_more_keys); nothing when more bytes are
    /// needed. Consumes VALIDATE without returning it. The request's views are valid until the next call of feed(),
    /// keep() or next(). Errors: kMalformed (unknown code, wrong first bytes) and kLimit; the connection is to be
    /// closed, and every later call fails alike.
    [[nodiscard]] Result<std::optional<Request>> next();

    /// Returns memory for the next bytes of a large value, to be received without a copy; empty when it is not in the
    /// middle of one. After writing there call received(); feed() works as always.
    [[nodiscard]] std::span<char> room();
    void received(std::size_t bytes) { request_.block.commit(bytes); }

    /// Returns whether it is in the middle of a large value.
    [[nodiscard]] bool receiving() const { return request_.block_size != 0; }

    /// Returns whether a request has begun and is not complete.
    [[nodiscard]] bool inside_request() const { return input_.begin < data().size(); }
    /// Returns the bytes of memory that it holds beside its blocks.
    [[nodiscard]] std::size_t held_bytes() const {
        return (input_.buffer.capacity() > kInside ? input_.buffer.capacity() : 0) +
               request_.pieces.capacity() * sizeof(Piece) +
               (views_.keys.capacity() + views_.values.capacity()) * sizeof(std::string_view);
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
    /// Moves the next keys into views_. Returns whether further keys of the request are left for the next part.
    [[nodiscard]] bool take_keys(std::size_t strings_per_item);
    void give_memory_back();

    [[nodiscard]] std::string_view data() const { return input_.data(); }
    [[nodiscard]] std::string_view view(const Piece& piece) const {
        return data().substr(input_.begin + piece.begin, piece.size);
    }
    [[nodiscard]] std::size_t available() const { return data().size() - input_.begin - request_.offset; }
    [[nodiscard]] const char* position() const { return data().data() + input_.begin + request_.offset; }

    /// The available bytes: those fed last, or a copy of their rest followed by new ones.
    struct Input {
        std::string_view fed;
        std::string buffer;
        std::size_t begin = 0;  ///< of the request that is being scanned
        bool copied = false;
        [[nodiscard]] std::string_view data() const { return copied ? std::string_view(buffer) : fed; }
    };
    /// The progress of the scan. The scan continues from here, so that many small pieces cost no more than one large
    /// one.
    struct PartialRequest {
        RequestKind kind = RequestKind::kValidate;  ///< VALIDATE: its code is not read yet
        std::uint8_t field = 0;
        std::size_t offset = 0;  ///< from Input::begin
        Piece key{};
        Piece expected{};
        Piece value{};
        std::int64_t number = 0;
        std::optional<std::size_t> strings_left;  ///< of the list that is being scanned
        std::vector<Piece> pieces;                ///< of lists
        std::size_t taken_pieces = 0;             ///< of them, by the parts of the request that next() has returned
        std::size_t block_size = 0;               ///< of a large value in several pieces; it grows in `block`
        Block block;
    };
    /// The memory behind the views of the request that next() returned last.
    struct Views {
        std::vector<std::string_view> keys;
        std::vector<std::string_view> values;
        Block block;
    };

    const Options* options_;
    BlockMemory* block_memory_;
    Input input_;
    Dialect dialect_ = Dialect::kUnsettled;
    PartialRequest request_;
    Views views_;
    std::optional<Error> error_;
};

}  // namespace ddprun::store

#pragma once
// Decoder: the bytes of one connection become requests, whatever pieces they arrive in. Pure: no socket, no clock, no
// log. Its memory follows the bytes that came, never the lengths they announce. One for each connection, single owner.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "rendezvous/store/limits.hpp"
#include "rendezvous/store/request.hpp"

namespace ddprun::store {

class Decoder {
public:
    /// The dialect is settled by the first bytes: modern if they are VALIDATE, otherwise `options.older_dialect`.
    explicit Decoder(const Options& options) : limits_(options.limits), older_(options.older_dialect) {}

    /// Takes the next bytes of the stream. Ends the validity of every view handed out before.
    void feed(std::string_view bytes);

    /// The next complete request; nothing when more bytes are needed. VALIDATE is taken in silently. The request's
    /// views hold until the next call of feed() or next(). Errors: kMalformed (unknown code, wrong first bytes) and
    /// kLimit; the connection is to be closed, and every later call fails alike.
    [[nodiscard]] Result<std::optional<Request>> next();

    /// Whether a request has begun and is not complete.
    [[nodiscard]] bool inside_request() const { return begin_ < buffer_.size(); }

private:
    enum class Scan { kDone, kMore, kFailed };
    enum class Dialect { kUnsettled, kModern, kV1_13, kV2_1 };
    struct Piece {
        std::size_t begin;  ///< from the first byte of the request
        std::size_t size;
    };

    Scan settle_dialect();
    Scan scan();
    Scan scan_code();
    Scan scan_field(char field);
    Scan scan_list(std::size_t strings_per_item);
    Scan scan_string(std::size_t limit_bytes, std::string_view what);
    template <typename T>
    Scan scan_number(T& number);
    Scan fail(Errc code, std::string message);
    [[nodiscard]] Request finish();
    [[nodiscard]] std::size_t available() const { return buffer_.size() - begin_ - offset_; }
    [[nodiscard]] const char* position() const { return buffer_.data() + begin_ + offset_; }

    Limits limits_;
    OlderDialect older_;
    Dialect dialect_ = Dialect::kUnsettled;
    std::string buffer_;
    std::size_t begin_ = 0;  ///< of the request that is being scanned, in buffer_

    // How far that request is scanned. It goes on from here when more has come, so that many small pieces cost no more
    // than one large one.
    std::size_t offset_ = 0;                     ///< from begin_
    RequestKind kind_ = RequestKind::kValidate;  ///< VALIDATE stands for "its code is not read yet"
    std::size_t field_ = 0;
    std::optional<std::size_t> strings_left_;  ///< of the list that is being scanned
    std::vector<Piece> pieces_;
    std::int64_t number_ = 0;

    std::vector<std::string_view> keys_;  ///< what the last request's spans point to
    std::vector<std::string_view> values_;
    std::optional<Error> error_;
};

}  // namespace ddprun::store

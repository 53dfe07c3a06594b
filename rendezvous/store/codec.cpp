#include "rendezvous/store/codec.hpp"

#include <fmt/format.h>

#include <array>
#include <span>
#include <utility>

#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

using enum RequestKind;

constexpr std::size_t kValidateBytes = 1 + sizeof wire::kMagic;
/// A connection keeps at most this much memory while it is between requests.
constexpr std::size_t kKeptBytes = std::size_t{16} << 10;

// The code bytes of each dialect, in order. VALIDATE marks a code that is not served: its one proper place is the first
// five bytes of a connection, which never come this far.
constexpr std::array kModernCodes{kValidate,   kSet,       kCompareSet,  kGet,      kAdd,      kCheck,      kWait,
                                  kGetNumKeys, kDeleteKey, kAppend,      kMultiGet, kMultiSet, kCancelWait, kPing,
                                  kQueuePush,  kQueuePop,  kQueueLength, kListKeys, kBarrier};
constexpr std::array k1_13Codes{
    kSet, kCompareSet, kGet, kAdd, kCheck, kWait, kGetNumKeys, kValidate /* WATCH_KEY */, kDeleteKey};
constexpr std::array k2_1Codes{kSet,        kCompareSet, kGet,    kAdd,      kCheck,    kWait,
                               kGetNumKeys, kDeleteKey,  kAppend, kMultiGet, kMultiSet, kCancelWait};

/// What follows the code byte: k key, e expected value, v value, n i64, w u32, K list of keys, P list of keys with
/// values.
constexpr std::string_view fields_of(RequestKind kind) {
    switch (kind) {
        case kSet:
        case kAppend:
        case kQueuePush: return "kv";
        case kCompareSet: return "kev";
        case kAdd:
        case kBarrier: return "kn";
        case kGet:
        case kDeleteKey:
        case kQueuePop:
        case kQueueLength: return "k";
        case kCheck:
        case kWait:
        case kMultiGet: return "K";
        case kMultiSet: return "P";
        case kPing: return "w";
        case kValidate:
        case kGetNumKeys:
        case kCancelWait:
        case kListKeys: break;
    }
    return "";
}

}  // namespace

void Decoder::feed(std::string_view bytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    buffer_.append(bytes);
}

Result<std::optional<Request>> Decoder::next() {
    switch (scan()) {
        case Scan::kDone: return std::optional(finish());
        case Scan::kFailed: return *error_;
        case Scan::kMore: break;
    }
    if (begin_ == buffer_.size() && buffer_.capacity() > kKeptBytes) {
        begin_ = 0;
        buffer_ = {};
        pieces_ = {};
        keys_ = {};
        values_ = {};
    }
    return std::optional<Request>{};
}

Decoder::Scan Decoder::scan() {
    if (error_) return Scan::kFailed;
    if (dialect_ == Dialect::kUnsettled) {
        if (const Scan settled = settle_dialect(); settled != Scan::kDone) return settled;
    }
    if (kind_ == kValidate) {
        if (const Scan code = scan_code(); code != Scan::kDone) return code;
    }
    for (const std::string_view fields = fields_of(kind_); field_ < fields.size(); ++field_) {
        if (const Scan field = scan_field(fields[field_]); field != Scan::kDone) return field;
    }
    return Scan::kDone;
}

Decoder::Scan Decoder::settle_dialect() {
    if (available() == 0) return Scan::kMore;
    if (*position() == 0) {
        // VALIDATE, or an older SET: the magic number would be a key of over 10^9 bytes, so the two cannot be confused.
        if (available() < kValidateBytes) return Scan::kMore;
        if (wire::load_number<std::uint32_t>(position() + 1) == wire::kMagic) {
            dialect_ = Dialect::kModern;
            begin_ += kValidateBytes;
            return Scan::kDone;
        }
    }
    switch (older_) {
        case OlderDialect::kV1_13: dialect_ = Dialect::kV1_13; return Scan::kDone;
        case OlderDialect::kV2_1: dialect_ = Dialect::kV2_1; return Scan::kDone;
        case OlderDialect::kNone: break;
    }
    return fail(Errc::kMalformed, "the connection does not begin with VALIDATE");
}

Decoder::Scan Decoder::scan_code() {
    if (available() == 0) return Scan::kMore;
    std::span<const RequestKind> codes = kModernCodes;
    if (dialect_ == Dialect::kV1_13) codes = k1_13Codes;
    if (dialect_ == Dialect::kV2_1) codes = k2_1Codes;
    const auto code = static_cast<unsigned char>(*position());
    if (code >= codes.size() || codes[code] == kValidate) {
        return fail(Errc::kMalformed, fmt::format("request code {} is not served", code));
    }
    kind_ = codes[code];
    ++offset_;
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_field(char field) {
    switch (field) {
        case 'k': return scan_string(limits_.key_bytes, "key");
        case 'e':
        case 'v': return scan_string(limits_.value_bytes, "value");
        case 'K': return scan_list(1);
        case 'P': return scan_list(2);
        case 'n': return scan_number(number_);
        default: break;
    }
    std::uint32_t word = 0;
    const Scan scanned = scan_number(word);
    number_ = word;
    return scanned;
}

Decoder::Scan Decoder::scan_list(std::size_t strings_per_item) {
    if (!strings_left_) {
        std::uint64_t count = 0;
        if (const Scan scanned = scan_number(count); scanned != Scan::kDone) return scanned;
        if (count > limits_.keys_per_request) {
            return fail(Errc::kLimit,
                        fmt::format("{} keys in one request, of at most {}", count, limits_.keys_per_request));
        }
        strings_left_ = static_cast<std::size_t>(count) * strings_per_item;
    }
    for (; *strings_left_ > 0; --*strings_left_) {
        const bool is_value = strings_per_item == 2 && *strings_left_ % 2 == 1;
        const Scan scanned =
            is_value ? scan_string(limits_.value_bytes, "value") : scan_string(limits_.key_bytes, "key");
        if (scanned != Scan::kDone) return scanned;
    }
    strings_left_.reset();
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_string(std::size_t limit_bytes, std::string_view what) {
    if (available() < sizeof(std::uint64_t)) return Scan::kMore;
    const auto size = wire::load_number<std::uint64_t>(position());
    if (size > limit_bytes)
        return fail(Errc::kLimit, fmt::format("a {} of {} bytes, of at most {}", what, size, limit_bytes));
    if (offset_ + sizeof size + size > limits_.request_bytes) {
        return fail(Errc::kLimit, fmt::format("a request of more than {} bytes", limits_.request_bytes));
    }
    if (available() - sizeof size < size) return Scan::kMore;
    pieces_.push_back({offset_ + sizeof size, static_cast<std::size_t>(size)});
    offset_ += sizeof size + size;
    return Scan::kDone;
}

template <typename T>
Decoder::Scan Decoder::scan_number(T& number) {
    if (available() < sizeof number) return Scan::kMore;
    number = wire::load_number<T>(position());
    offset_ += sizeof number;
    return Scan::kDone;
}

Decoder::Scan Decoder::fail(Errc code, std::string message) {
    error_ = Error{code, std::move(message)};
    return Scan::kFailed;
}

Request Decoder::finish() {
    Request request;
    request.kind = kind_;
    request.number = number_;
    keys_.clear();
    values_.clear();
    const auto view = [&](std::size_t i) {
        return std::string_view(buffer_).substr(begin_ + pieces_[i].begin, pieces_[i].size);
    };
    const std::string_view fields = fields_of(kind_);
    if (fields == "K") {
        for (std::size_t i = 0; i < pieces_.size(); ++i) keys_.push_back(view(i));
    } else if (fields == "P") {
        for (std::size_t i = 0; i < pieces_.size(); i += 2) {
            keys_.push_back(view(i));
            values_.push_back(view(i + 1));
        }
    } else {
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            if (fields[i] == 'k') request.key = view(i);
            if (fields[i] == 'e') request.expected = view(i);
            if (fields[i] == 'v') request.value = view(i);
        }
    }
    request.keys = keys_;
    request.values = values_;

    begin_ += std::exchange(offset_, 0);
    kind_ = kValidate;
    field_ = 0;
    number_ = 0;
    pieces_.clear();
    return request;
}

}  // namespace ddprun::store

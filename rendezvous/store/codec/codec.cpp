#include "rendezvous/store/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

using enum RequestKind;

constexpr std::size_t kValidateBytes = 1 + sizeof wire::kMagic;
/// A connection keeps at most this much memory of each kind while it is between requests.
constexpr std::size_t kKeptBytes = 512;
/// The least room that a large value begins with; then it follows the bytes that came (R3).
constexpr std::size_t kFirstBlockBytes = std::size_t{4} << 10;

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
    if (error_) return;
    if (block_size_ != 0) {
        const std::size_t of_value = std::min(bytes.size(), block_size_ - block_.size());
        block_.append(bytes.substr(0, of_value));
        bytes.remove_prefix(of_value);
    }
    if (begin_ == data().size()) {
        fed_ = bytes;
        begin_ = 0;
        copied_ = false;
        return;
    }
    keep();
    buffer_.append(bytes);
}

void Decoder::keep() {
    if (copied_) {
        buffer_.erase(0, begin_);
    } else {
        buffer_.assign(fed_.substr(begin_));
        copied_ = true;
    }
    begin_ = 0;
}

Result<std::optional<Request>> Decoder::next() {
    if (value_block_) value_block_ = {};  // what the last request brought and nobody took
    switch (scan()) {
        case Scan::kDone: return std::optional(finish());
        case Scan::kFailed: return *error_;
        case Scan::kMore: break;
    }
    if (begin_ < data().size()) {
        if (!copied_) keep();
    } else {
        give_memory_back();
    }
    return std::optional<Request>{};
}

std::span<char> Decoder::room() {
    if (block_size_ == 0 || block_.size() == block_size_) return {};
    if (block_.room().empty()) block_.grow(block_size_);
    const std::span<char> room = block_.room();
    return room.first(std::min(room.size(), block_size_ - block_.size()));
}

void Decoder::give_memory_back() {
    begin_ = 0;
    fed_ = {};
    copied_ = false;
    // An assignment, also of an empty string, keeps the memory of a string; and `= {}` that of a vector.
    if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);
    if (held_bytes() <= kKeptBytes) return;
    pieces_ = std::vector<Piece>();
    keys_ = std::vector<std::string_view>();
    values_ = std::vector<std::string_view>();
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
    switch (options_->older_dialect) {
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
        case 'k': return scan_string(options_->limits.key_bytes, "key", key_);
        case 'e': return scan_string(options_->limits.value_bytes, "value", expected_);
        case 'v': return scan_value();
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
        if (count > options_->limits.keys_per_request) {
            return fail(Errc::kLimit,
                        fmt::format("{} keys in one request, of at most {}", count, options_->limits.keys_per_request));
        }
        strings_left_ = static_cast<std::size_t>(count) * strings_per_item;
        // At least their lengths have to have come.
        pieces_.reserve(std::min(*strings_left_, available() / sizeof(std::uint64_t)));
    }
    for (; *strings_left_ > 0; --*strings_left_) {
        const bool is_value = strings_per_item == 2 && *strings_left_ % 2 == 1;
        Piece piece{};
        const Scan scanned = is_value ? scan_string(options_->limits.value_bytes, "value", piece)
                                      : scan_string(options_->limits.key_bytes, "key", piece);
        if (scanned != Scan::kDone) return scanned;
        pieces_.push_back(piece);
    }
    strings_left_.reset();
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_string(std::size_t limit_bytes, std::string_view what, Piece& piece) {
    if (available() < sizeof(std::uint64_t)) return Scan::kMore;
    const auto size = wire::load_number<std::uint64_t>(position());
    if (size > limit_bytes) {
        return fail(Errc::kLimit, fmt::format("a {} of {} bytes, of at most {}", what, size, limit_bytes));
    }
    if (offset_ + sizeof size + size > options_->limits.request_bytes) {
        return fail(Errc::kLimit, fmt::format("a request of more than {} bytes", options_->limits.request_bytes));
    }
    piece = {offset_ + sizeof size, static_cast<std::size_t>(size)};
    if (available() - sizeof size < size) return Scan::kMore;
    offset_ += sizeof size + size;
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_value() {
    if (block_size_ == 0) {
        value_ = {};
        const Scan scanned = scan_string(options_->limits.value_bytes, "value", value_);
        if (scanned != Scan::kMore || value_.size < kLargeBytes) return scanned;
        // What has come of it moves to where all of it will be. The rest of the request stays before what follows it.
        offset_ += sizeof(std::uint64_t);
        block_ = Block(std::min(value_.size, std::max(2 * available(), kFirstBlockBytes)), block_memory_);
        block_.append({position(), available()});
        block_size_ = value_.size;
        buffer_ = std::string(data().substr(begin_, offset_));
        begin_ = 0;
        copied_ = true;
    }
    return block_.size() == block_size_ ? Scan::kDone : Scan::kMore;
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
    const std::string_view fields = fields_of(kind_);
    if (!pieces_.empty() || !keys_.empty()) {
        request.has_more_keys = take_keys(fields == "P" ? 2 : 1);
        request.keys = keys_;
        request.values = values_;
        if (request.has_more_keys) return request;
    }
    if (fields.starts_with('k')) request.key = view(key_);
    if (kind_ == kCompareSet) request.expected = view(expected_);
    if (fields.ends_with('v')) request.value = view(value_);
    if (block_size_ != 0) {
        value_block_ = std::move(block_);
        request.value = value_block_.view();
        request.block = &value_block_;
        block_size_ = 0;
    }

    begin_ += std::exchange(offset_, 0);
    kind_ = kValidate;
    field_ = 0;
    number_ = 0;
    return request;
}

bool Decoder::take_keys(std::size_t strings_per_item) {
    keys_.clear();
    values_.clear();
    const std::size_t left = pieces_.size() - taken_pieces_;
    const std::size_t now = kind_ == kMultiGet ? std::min(left, options_->keys_at_once) : left;
    keys_.reserve(now / strings_per_item);
    for (const std::size_t end = taken_pieces_ + now; taken_pieces_ < end; taken_pieces_ += strings_per_item) {
        keys_.push_back(view(pieces_[taken_pieces_]));
        if (strings_per_item == 2) values_.push_back(view(pieces_[taken_pieces_ + 1]));
    }
    if (taken_pieces_ < pieces_.size()) return true;
    pieces_.clear();
    taken_pieces_ = 0;
    return false;
}

}  // namespace ddprun::store

#include "rendezvous/store/codec/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {
namespace {

using enum RequestKind;

constexpr std::size_t kValidateBytes = 1 + sizeof wire::kMagic;
/// A connection keeps at most this much memory of each kind while it is between requests.
constexpr std::size_t kKeptInputBytes = 512;
/// The minimum initial room of a large value. The room then grows with the bytes that have arrived (R3).
constexpr std::size_t kFirstBlockBytes = std::size_t{4} << 10;

// The code bytes of each dialect, in order. VALIDATE marks a code that is not served: its one proper position is the
// first five bytes of a connection, which scan_code() never sees.
constexpr std::array kModernCodes{kValidate,   kSet,       kCompareSet,  kGet,      kAdd,      kCheck,      kWait,
                                  kGetNumKeys, kDeleteKey, kAppend,      kMultiGet, kMultiSet, kCancelWait, kPing,
                                  kQueuePush,  kQueuePop,  kQueueLength, kListKeys, kBarrier};
constexpr std::array k1_13Codes{
    kSet, kCompareSet, kGet, kAdd, kCheck, kWait, kGetNumKeys, kValidate /* WATCH_KEY */, kDeleteKey};
constexpr std::array k2_1Codes{kSet,        kCompareSet, kGet,    kAdd,      kCheck,    kWait,
                               kGetNumKeys, kDeleteKey,  kAppend, kMultiGet, kMultiSet, kCancelWait};

/// Returns the fields after the code byte: k key, e expected value, v value, n i64, w u32, K list of keys, P list of
/// keys with values.
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

bool may_begin_with(char first) {
    // A modern connection begins with the code 0, an older one with any code of its dialect.
    return static_cast<unsigned char>(first) < std::max(k1_13Codes.size(), k2_1Codes.size());
}

void Decoder::feed(std::string_view bytes) {
    if (error_) return;
    if (request_.block_size != 0) {
        const std::size_t of_value = std::min(bytes.size(), request_.block_size - request_.block.size());
        request_.block.append(bytes.substr(0, of_value));
        bytes.remove_prefix(of_value);
    }
    if (input_.begin == data().size()) {
        input_.fed = bytes;
        input_.begin = 0;
        input_.copied = false;
        return;
    }
    keep();
    input_.buffer.append(bytes);
}

void Decoder::keep() {
    if (input_.copied) {
        input_.buffer.erase(0, input_.begin);
    } else {
        input_.buffer.assign(input_.fed.substr(input_.begin));
        input_.copied = true;
    }
    input_.begin = 0;
}

Result<std::optional<Request>> Decoder::next() {
    if (views_.block) views_.block = {};  // of the last request, if the engine did not take it
    switch (scan()) {
        case Scan::kDone: return std::optional(finish());
        case Scan::kFailed: return *error_;
        case Scan::kMore: break;
    }
    if (input_.begin < data().size()) {
        if (!input_.copied) keep();
    } else {
        give_memory_back();
    }
    return std::optional<Request>{};
}

std::span<char> Decoder::room() {
    if (request_.block_size == 0 || request_.block.size() == request_.block_size) return {};
    if (request_.block.room().empty()) request_.block.grow(request_.block_size);
    const std::span<char> room = request_.block.room();
    return room.first(std::min(room.size(), request_.block_size - request_.block.size()));
}

void Decoder::give_memory_back() {
    input_.begin = 0;
    input_.fed = {};
    input_.copied = false;
    // Assigning an empty string keeps the memory of a string, and `= {}` keeps that of a vector.
    if (input_.buffer.capacity() > kKeptInputBytes) std::string().swap(input_.buffer);
    if (held_bytes() <= kKeptInputBytes) return;
    request_.pieces = std::vector<Piece>();
    views_.keys = std::vector<std::string_view>();
    views_.values = std::vector<std::string_view>();
}

Decoder::Scan Decoder::scan() {
    if (error_) return Scan::kFailed;
    if (dialect_ == Dialect::kUnsettled) {
        if (const Scan settled = settle_dialect(); settled != Scan::kDone) return settled;
    }
    if (request_.kind == kValidate) {
        if (const Scan code = scan_code(); code != Scan::kDone) return code;
    }
    for (const std::string_view fields = fields_of(request_.kind); request_.field < fields.size(); ++request_.field) {
        if (const Scan field = scan_field(fields[request_.field]); field != Scan::kDone) return field;
    }
    return Scan::kDone;
}

Decoder::Scan Decoder::settle_dialect() {
    if (available() == 0) return Scan::kMore;
    if (*position() == 0) {
        // An older SET begins with 0 too, but as the length of its key the magic number would mean over 10^9 bytes.
        if (available() < kValidateBytes) return Scan::kMore;
        if (wire::load_number<std::uint32_t>(position() + 1) == wire::kMagic) {
            dialect_ = Dialect::kModern;
            input_.begin += kValidateBytes;
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
    request_.kind = codes[code];
    ++request_.offset;
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_field(char field) {
    switch (field) {
        case 'k': return scan_string(options_->limits.key_bytes, "key", request_.key);
        case 'e': return scan_string(options_->limits.value_bytes, "value", request_.expected);
        case 'v': return scan_value();
        case 'K': return scan_list(1);
        case 'P': return scan_list(2);
        case 'n': return scan_number(request_.number);
        default: break;
    }
    std::uint32_t word = 0;
    const Scan scanned = scan_number(word);
    request_.number = word;
    return scanned;
}

Decoder::Scan Decoder::scan_list(std::size_t strings_per_item) {
    if (!request_.strings_left) {
        std::uint64_t count = 0;
        if (const Scan scanned = scan_number(count); scanned != Scan::kDone) return scanned;
        if (count > options_->limits.keys_per_request) {
            return fail(Errc::kLimit, fmt::format("{} keys in one request; the limit is {}", count,
                                                  options_->limits.keys_per_request));
        }
        request_.strings_left = static_cast<std::size_t>(count) * strings_per_item;
        // Every string needs at least its length: that bounds how many have arrived.
        request_.pieces.reserve(std::min(*request_.strings_left, available() / sizeof(std::uint64_t)));
    }
    for (; *request_.strings_left > 0; --*request_.strings_left) {
        const bool is_value = strings_per_item == 2 && *request_.strings_left % 2 == 1;
        Piece piece{};
        const Scan scanned = is_value ? scan_string(options_->limits.value_bytes, "value", piece)
                                      : scan_string(options_->limits.key_bytes, "key", piece);
        if (scanned != Scan::kDone) return scanned;
        request_.pieces.push_back(piece);
    }
    request_.strings_left.reset();
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_string(std::size_t limit_bytes, std::string_view what, Piece& piece) {
    if (available() < sizeof(std::uint64_t)) return Scan::kMore;
    const auto size = wire::load_number<std::uint64_t>(position());
    if (size > limit_bytes) {
        return fail(Errc::kLimit, fmt::format("a {} of {} bytes; the limit is {}", what, size, limit_bytes));
    }
    if (request_.offset + sizeof size + size > options_->limits.request_bytes) {
        return fail(Errc::kLimit, fmt::format("a request of more than {} bytes", options_->limits.request_bytes));
    }
    piece = {request_.offset + sizeof size, static_cast<std::size_t>(size)};
    if (available() - sizeof size < size) return Scan::kMore;
    request_.offset += sizeof size + size;
    return Scan::kDone;
}

Decoder::Scan Decoder::scan_value() {
    if (request_.block_size == 0) {
        request_.value = {};
        const Scan scanned = scan_string(options_->limits.value_bytes, "value", request_.value);
        if (scanned != Scan::kMore || request_.value.size < kLargeBytes) return scanned;
        // The bytes of the value that have arrived move to the block. The rest of the request stays in the buffer.
        request_.offset += sizeof(std::uint64_t);
        request_.block =
            Block(std::min(request_.value.size, std::max(2 * available(), kFirstBlockBytes)), block_memory_);
        request_.block.append({position(), available()});
        request_.block_size = request_.value.size;
        input_.buffer = std::string(data().substr(input_.begin, request_.offset));
        input_.begin = 0;
        input_.copied = true;
    }
    return request_.block.size() == request_.block_size ? Scan::kDone : Scan::kMore;
}

template <typename T>
Decoder::Scan Decoder::scan_number(T& number) {
    if (available() < sizeof number) return Scan::kMore;
    number = wire::load_number<T>(position());
    request_.offset += sizeof number;
    return Scan::kDone;
}

Decoder::Scan Decoder::fail(Errc code, std::string message) {
    error_ = Error{code, std::move(message)};
    return Scan::kFailed;
}

Request Decoder::finish() {
    Request request;
    request.kind = request_.kind;
    request.number = request_.number;
    const std::string_view fields = fields_of(request_.kind);
    if (!request_.pieces.empty() || !views_.keys.empty()) {
        request.has_more_keys = take_keys(fields == "P" ? 2 : 1);
        request.keys = views_.keys;
        request.values = views_.values;
        if (request.has_more_keys) return request;
    }
    if (fields.starts_with('k')) request.key = view(request_.key);
    if (request_.kind == kCompareSet) request.expected = view(request_.expected);
    if (fields.ends_with('v')) request.value = view(request_.value);
    if (request_.block_size != 0) {
        views_.block = std::move(request_.block);
        request.value = views_.block.view();
        request.block = &views_.block;
        request_.block_size = 0;
    }

    input_.begin += std::exchange(request_.offset, 0);
    request_.kind = kValidate;
    request_.field = 0;
    request_.number = 0;
    return request;
}

bool Decoder::take_keys(std::size_t strings_per_item) {
    views_.keys.clear();
    views_.values.clear();
    const std::size_t left = request_.pieces.size() - request_.taken_pieces;
    const std::size_t now = request_.kind == kMultiGet ? std::min(left, options_->keys_at_once) : left;
    views_.keys.reserve(now / strings_per_item);
    for (const std::size_t end = request_.taken_pieces + now; request_.taken_pieces < end;
         request_.taken_pieces += strings_per_item) {
        views_.keys.push_back(view(request_.pieces[request_.taken_pieces]));
        if (strings_per_item == 2) views_.values.push_back(view(request_.pieces[request_.taken_pieces + 1]));
    }
    if (request_.taken_pieces < request_.pieces.size()) return true;
    request_.pieces.clear();
    request_.taken_pieces = 0;
    return false;
}

}  // namespace ddprun::store

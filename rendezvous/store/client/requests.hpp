#pragma once
// Encodes requests in the modern dialect, and batches of them. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/codec/request.hpp"
#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {

/// Return the bytes of a request: its code, then the fields that this kind of request has.
inline std::string request_of(RequestKind kind) { return {static_cast<char>(kind)}; }

inline std::string request_of(RequestKind kind, std::string_view key) {
    std::string request = request_of(kind);
    wire::append_bytes(request, key);
    return request;
}

inline std::string request_of(RequestKind kind, std::string_view key, std::string_view value) {
    std::string request = request_of(kind, key);
    wire::append_bytes(request, value);
    return request;
}

inline std::string request_of(RequestKind kind, std::string_view key, std::int64_t number) {
    std::string request = request_of(kind, key);
    wire::append_number(request, number);
    return request;
}

inline std::string request_of(RequestKind kind, std::span<const std::string> keys) {
    std::string request = request_of(kind);
    wire::append_number<std::uint64_t>(request, keys.size());
    for (const std::string& key : keys) wire::append_bytes(request, key);
    return request;
}

/// Batch: several requests that go to the store in one write and are answered in order. Only for requests that are
/// answered at once: the next request would end a WAIT.
class Batch {
public:
    /// The form of the store's reply to one request.
    enum class ReplyKind : std::uint8_t { kNothing, kByte, kNumber, kBytes };

    void set(std::string_view key, std::string_view value) {
        put(request_of(RequestKind::kSet, key, value), ReplyKind::kNothing);
    }
    void append(std::string_view key, std::string_view value) {
        put(request_of(RequestKind::kAppend, key, value), ReplyKind::kNothing);
    }
    /// Answer::number is the sum.
    void add(std::string_view key, std::int64_t amount) {
        put(request_of(RequestKind::kAdd, key, amount), ReplyKind::kNumber);
    }
    /// Answer::bytes is the value. Only for a key that is there: otherwise PyTorch's servers end the connection, and
    /// others answer the empty value.
    void get(std::string_view key) { put(request_of(RequestKind::kGet, key), ReplyKind::kBytes); }
    /// Answer::number is 0 if all of them are there, else 1.
    void check(std::span<const std::string> keys) { put(request_of(RequestKind::kCheck, keys), ReplyKind::kByte); }
    /// Answer::number is 1 if it was there, else 0.
    void delete_key(std::string_view key) { put(request_of(RequestKind::kDeleteKey, key), ReplyKind::kNumber); }

    [[nodiscard]] std::size_t size() const { return reply_kinds_.size(); }
    [[nodiscard]] const std::string& requests() const { return requests_; }
    [[nodiscard]] std::span<const ReplyKind> reply_kinds() const { return reply_kinds_; }

private:
    void put(std::string_view request, ReplyKind reply) {
        requests_ += request;
        reply_kinds_.push_back(reply);
    }
    std::string requests_;
    std::vector<ReplyKind> reply_kinds_;
};

/// The answer to one request of a batch; empty where the store sends nothing.
struct Answer {
    std::string bytes;
    std::int64_t number = 0;
};

}  // namespace ddprun::store

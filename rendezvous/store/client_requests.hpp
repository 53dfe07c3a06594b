#pragma once
// Requests as the client sends them: the modern dialect. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/store/request.hpp"
#include "rendezvous/store/wire.hpp"

namespace ddprun::store {

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

}  // namespace ddprun::store

#pragma once
// Limits: the limits of one store. A connection that exceeds one is closed, or not accepted yet; the store and the
// other connections continue.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/store/codec/hash.hpp"
#include "rendezvous/store/codec/request.hpp"

namespace ddprun::store {
/// One member for each limit, because each has an option of its own (kLimitOptions).
struct Limits {
    std::size_t key_bytes = std::size_t{8} << 10;
    std::size_t value_bytes = std::size_t{64} << 20;  ///< of one value, also after APPEND
    std::size_t keys_per_request = 131072;
    std::size_t request_bytes = std::size_t{128} << 20;
    /// Of one reply: to LIST_KEYS, or to Options::keys_at_once keys of MULTI_GET. A client that asks for more is
    /// disconnected.
    std::size_t reply_bytes = std::size_t{256} << 20;
    std::size_t store_keys = std::size_t{1} << 20;
    std::size_t store_bytes = std::size_t{1} << 30;  ///< keys, values, queues, awaited names, and an allowance for each
    std::size_t waiters = std::size_t{1} << 20;      ///< keys that are waited for, counted once for each connection
    std::size_t buffer_bytes = std::size_t{1} << 30;  ///< half received requests and unsent replies, all together
    /// Of all unsent replies to one client. A client that reads more slowly stays connected, but its next request waits
    /// until it has read them. One reply may be larger.
    std::size_t output_bytes = std::size_t{256} << 10;
    std::size_t connections = 65536;
    std::size_t connections_per_address = 65536;
    std::size_t stalled_request_seconds = 60;  ///< inside one request, without a byte. Never between requests
};

/// A limit with its name and its description for users.
struct LimitOption {
    std::string_view name;
    std::size_t Limits::*field;
    std::string_view help;
};

inline constexpr std::array kLimitOptions{
    LimitOption{"key-bytes", &Limits::key_bytes, "longest key"},
    LimitOption{"value-bytes", &Limits::value_bytes, "longest value, also after APPEND"},
    LimitOption{"keys-per-request", &Limits::keys_per_request, "keys or pairs in one request"},
    LimitOption{"request-bytes", &Limits::request_bytes, "longest request"},
    LimitOption{"reply-bytes", &Limits::reply_bytes, "longest reply to LIST_KEYS, and to each part of a MULTI_GET"},
    LimitOption{"store-keys", &Limits::store_keys, "keys and queue elements in the store"},
    LimitOption{"store-bytes", &Limits::store_bytes, "memory of all that is stored and waited for"},
    LimitOption{"waiters", &Limits::waiters, "keys that connections wait for, counted once for each connection"},
    LimitOption{"buffer-bytes", &Limits::buffer_bytes, "half received requests and unsent replies of all connections"},
    LimitOption{"output-bytes", &Limits::output_bytes,
                "unsent replies of a connection from which on its next requests wait"},
    LimitOption{"connections", &Limits::connections, "connections at once; further ones wait to be accepted"},
    LimitOption{"connections-per-address", &Limits::connections_per_address,
                "connections at once from one address; further ones are closed"},
    LimitOption{
        "stalled-request-seconds", &Limits::stalled_request_seconds,
        "silence in the middle of a request after which its connection is closed; between requests any is fine"},
};

/// The settings of one store.
struct Options {
    Limits limits;
    OlderDialect older_dialect = OlderDialect::kV1_13;
    /// A MULTI_GET of more keys is answered in parts, between which other connections are served. At least 1.
    std::size_t keys_at_once = 1024;
    /// Clients on this host are served only if they belong to the user of this process.
    bool own_user_only = false;
    /// Keeps clients from choosing keys that collide. StoreServer draws one itself when it is zero.
    HashSeed hash_seed;
};

}  // namespace ddprun::store

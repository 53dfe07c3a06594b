#pragma once
// Request: a request to the store, the same for every dialect of the protocol. Its views point into the decoder that
// made it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rendezvous/store/codec/block.hpp"

namespace ddprun::store {

/// The values are the code bytes of the modern dialect (PyTorch 2.2 and later).
enum class RequestKind : std::uint8_t {
    kValidate = 0,
    kSet = 1,
    kCompareSet = 2,
    kGet = 3,
    kAdd = 4,
    kCheck = 5,
    kWait = 6,
    kGetNumKeys = 7,
    kDeleteKey = 8,
    kAppend = 9,
    kMultiGet = 10,
    kMultiSet = 11,
    kCancelWait = 12,
    kPing = 13,
    kQueuePush = 14,
    kQueuePop = 15,
    kQueueLength = 16,
    kListKeys = 17,
    kBarrier = 18,
};
inline constexpr std::size_t kRequestKinds = 19;

/// The dialect of a connection that does not begin with VALIDATE. The bytes do not show which one it is, so it is a
/// setting.
enum class OlderDialect : std::uint8_t {
    kNone,   ///< such a connection is closed
    kV1_13,  ///< PyTorch 1.13 and 2.0, without WATCH_KEY
    kV2_1,   ///< PyTorch 2.1
};

/// `kind` determines which fields have a meaning; the others are empty.
struct Request {
    RequestKind kind = RequestKind::kValidate;
    std::string_view key;                      ///< or the name of a queue
    std::string_view expected;                 ///< COMPARE_SET
    std::string_view value;                    ///< SET, APPEND, QUEUE_PUSH; COMPARE_SET: the desired value
    Block* block = nullptr;                    ///< if not null: holds `value`, and may be taken instead of copying it
    std::int64_t number = 0;                   ///< ADD: the amount. BARRIER: the world size. PING: the nonce
    std::span<const std::string_view> keys;    ///< CHECK, WAIT, MULTI_GET, MULTI_SET
    bool has_more_keys = false;                ///< MULTI_GET: the next request has further keys of the same one
    std::span<const std::string_view> values;  ///< MULTI_SET: one for each of `keys`
};

}  // namespace ddprun::store

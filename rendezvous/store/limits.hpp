#pragma once
// What one store accepts. Above a limit the connection that asked for it is closed; the store and the others go on.

#include <cstddef>

#include "rendezvous/store/request.hpp"

namespace ddprun::store {

struct Limits {
    std::size_t key_bytes = std::size_t{8} << 10;
    std::size_t value_bytes = std::size_t{64} << 20;  ///< of one value, also after APPEND
    std::size_t keys_per_request = 131072;
    std::size_t request_bytes = std::size_t{128} << 20;
    std::size_t reply_bytes = std::size_t{256} << 20;  ///< of one MULTI_GET or LIST_KEYS
    std::size_t store_bytes = std::size_t{1} << 30;  ///< keys, values, queues, awaited names, and an allowance for each
};

struct Options {
    Limits limits;
    OlderDialect older_dialect = OlderDialect::kV1_13;
};

}  // namespace ddprun::store

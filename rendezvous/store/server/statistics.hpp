#pragma once
// Statistics: counters of a store server so far, and its sizes now.

#include <array>
#include <cstddef>
#include <cstdint>

#include "rendezvous/store/codec/request.hpp"

namespace ddprun::store {

struct Statistics {
    std::size_t connections = 0;                          ///< now
    std::uint64_t accepted = 0;                           ///< connections so far
    std::uint64_t refused = 0;                            ///< of them closed for an invalid request, or over a limit
    std::uint64_t accept_failures = 0;                    ///< for lack of descriptors or memory
    std::array<std::uint64_t, kRequestKinds> requests{};  ///< by RequestKind
    std::uint64_t received_bytes = 0;
    std::uint64_t sent_bytes = 0;
    std::size_t keys = 0;          ///< now
    std::size_t store_bytes = 0;   ///< now, as Limits::store_bytes counts
    std::size_t waiters = 0;       ///< now, as Limits::waiters counts
    std::size_t buffer_bytes = 0;  ///< now, as Limits::buffer_bytes counts

    [[nodiscard]] std::uint64_t request_count() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t count : requests) sum += count;
        return sum;
    }
};

}  // namespace ddprun::store

#pragma once
// Signature: what the ranks compare before they touch each other's data. Travels through shared memory and in every
// message between nodes, so it is trivially copyable and all its bytes are defined.

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

struct Signature {
    std::uint64_t seq = 0;
    std::uint64_t count = 0;
    std::uint64_t counts_hash = 0;  ///< of what each rank gives or gets, where that differs between ranks
    std::int32_t root = 0;
    OpKind kind = OpKind::kBarrier;
    DType dtype = DType::u8;
    ReduceOp reduce_op = ReduceOp::Sum;
    std::uint8_t unused = 0;
    std::array<char, 24> tag{};  ///< cut; shown, never compared
};
static_assert(std::is_trivially_copyable_v<Signature> && sizeof(Signature) == 56);

[[nodiscard]] Signature signature_of(const Operation& operation);

/// Whether two ranks called the same thing; tags may differ.
[[nodiscard]] bool same_operation(const Signature& a, const Signature& b);

/// As describe(Operation).
[[nodiscard]] std::string describe(const Signature& signature);

}  // namespace ddp::detail

#pragma once
// Signature: the description of an operation that ranks compare before they touch each other's data. Every message
// contains it (compared in net/exchange_errors.cpp), and shared memory (compared in node/meetings.cpp), so it is
// trivially copyable and all its bytes are defined. Pure.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "worker_lib/src/operation/failure.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

/// The part that has to be equal on all ranks.
struct Identity {
    std::uint64_t seq = 0;
    std::uint64_t count = 0;
    std::uint64_t counts_hash = 0;  ///< of the list of counts, if these differ between ranks
    std::int32_t root = 0;          ///< without a root: 32 bits of the label's hash
    OpKind kind = OpKind::kBarrier;
    DType dtype = DType::U8;
    ReduceOp reduce_op = ReduceOp::Sum;
    std::uint8_t label_hash = 0;  ///< of the same hash; with a root there is no room for more
    [[nodiscard]] bool operator==(const Identity&) const = default;
};

/// The caller's label, cut, for errors.
using Label = std::array<char, 24>;

struct Signature {
    Identity identity;
    Label label{};
};
static_assert(std::is_trivially_copyable_v<Signature> && sizeof(Identity) == 32 && sizeof(Signature) == 56);

[[nodiscard]] Identity identity_of(const Operation& operation);
[[nodiscard]] Label label_of(const Operation& operation);
[[nodiscard]] inline Signature signature_of(const Operation& operation) {
    return {identity_of(operation), label_of(operation)};
}

/// Returns the text of describe(Operation).
[[nodiscard]] std::string describe(const Signature& signature);

/// Returns the failure {kOwn, Mismatch} of two ranks whose identities differ: "the ranks called all_reduce with
/// different counts: rank 0 (host a, pid 7): #2 all_reduce sum f32[10], rank 3 (host b, pid 9): #2 all_reduce sum
/// f32[11]". Lists of counts are compared by sum and hash only, so the text shows their difference only if that can be
/// found.
[[nodiscard]] Failure mismatch(std::string_view own_name, const Operation& own, std::string_view their_name,
                               const Signature& theirs);

}  // namespace ddp::detail

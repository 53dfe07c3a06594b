#pragma once
// The plain values of the worker library: element types, reductions, options of operations. Standard library only.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ddp/export.hpp"
#include "ddp/float16.hpp"

namespace DDP_EXPORT ddp {

/// The type of a buffer's elements. Bool is a byte that is 0 or 1, else results are unspecified, F16 IEEE 754 binary16,
/// BF16 the upper half of an f32.
enum class DType : std::uint8_t { Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64 };

/// The operator of a reduction.
///
/// Of Bool, Sum and Max are the logical or, Product and Min the logical and.
/// BitAnd, BitOr, BitXor: integers and Bool only, native backend only.
/// Avg: floats only. The sum of P ranks is multiplied by 1/P, rounded to the type of the summation (f32 for f16 and
/// bf16 too). So unless P is a power of two, the last bit may differ from sum / P. NCCL multiplies before it adds, by
/// 1/P rounded to the buffer's type, which makes a larger difference for f16 and bf16.
enum class ReduceOp : std::uint8_t { Sum, Avg, Min, Max, Product, BitAnd, BitOr, BitXor };

/// The kind of memory that a buffer refers to.
enum class Device : std::uint8_t { Cpu, Cuda };

/// The transport of a group. Native: shared memory and TCP, for host memory. Nccl: for memory of CUDA devices. Auto:
/// see InitOptions::backend.
enum class Backend : std::uint8_t { Auto, Native, Nccl };

/// Returns the bytes of one element; 0 for a value outside the enumeration.
[[nodiscard]] constexpr std::size_t size_of(DType type) {
    switch (type) {
        case DType::Bool:
        case DType::I8:
        case DType::U8: return 1;
        case DType::I16:
        case DType::U16:
        case DType::F16:
        case DType::BF16: return 2;
        case DType::I32:
        case DType::U32:
        case DType::F32: return 4;
        case DType::I64:
        case DType::U64:
        case DType::F64: return 8;
    }
    return 0;
}

/// Returns whether the type is a floating-point type; only these have gradients.
[[nodiscard]] constexpr bool is_float(DType type) {
    return type == DType::F16 || type == DType::BF16 || type == DType::F32 || type == DType::F64;
}

/// Returns the name in errors and on command lines: "f32".
[[nodiscard]] std::string_view to_string(DType type);
/// Returns the name in errors and on command lines: "sum".
[[nodiscard]] std::string_view to_string(ReduceOp op);
/// Returns the name in errors and on command lines: "native".
[[nodiscard]] std::string_view to_string(Backend backend);

namespace detail {

/// Returns the DType of a C++ type; nothing for a type that has none.
template <typename T>
[[nodiscard]] constexpr std::optional<DType> dtype_if_any() {
    if (std::is_same_v<T, float>) return DType::F32;
    if (std::is_same_v<T, double>) return DType::F64;
    if (std::is_same_v<T, Float16>) return DType::F16;
    if (std::is_same_v<T, BFloat16>) return DType::BF16;
    if (std::is_same_v<T, bool>) return DType::Bool;
    if (std::is_same_v<T, std::byte>) return DType::U8;
    if constexpr (std::is_integral_v<T>) {
        if (sizeof(T) == 1) return std::is_signed_v<T> ? DType::I8 : DType::U8;
        if (sizeof(T) == 2) return std::is_signed_v<T> ? DType::I16 : DType::U16;
        if (sizeof(T) == 4) return std::is_signed_v<T> ? DType::I32 : DType::U32;
        if (sizeof(T) == 8) return std::is_signed_v<T> ? DType::I64 : DType::U64;
    }
    return std::nullopt;
}

}  // namespace detail

/// A cudaStream_t on which buffers of device memory are ready, and which waits for the result. null: CUDA's legacy
/// default stream.
struct Stream {
    void* handle = nullptr;  ///< the cudaStream_t
};

/// A list that a call reads before it returns: a vector, an array, a span, or its elements in braces. Only for
/// arguments: a List that is kept outlives its elements.
template <typename T>
class List {
public:
    /// The elements in braces.
    constexpr List(std::initializer_list<T> elements) : elements_(elements.begin(), elements.size()) {}
    /// The elements of a vector, an array or a span.
    template <typename Range>
    requires std::convertible_to<Range&&, std::span<const T>>
    constexpr List(Range&& range) : elements_(std::forward<Range>(range)) {}

    /// Returns the elements, which belong to the caller.
    [[nodiscard]] constexpr std::span<const T> elements() const { return elements_; }

private:
    std::span<const T> elements_;
};

/// A timeout that never passes.
inline constexpr std::chrono::milliseconds kNoTimeout = std::chrono::milliseconds::max();

/// Options of one operation.
struct OpOptions {
    /// Deadline of the operation, from the call on. Without one: the group's default. A rank whose peer is itself
    /// waiting gets up to 3 s more, so that the rank closest to the cause reports first. Zero or less is
    /// Error{InvalidArgument}.
    std::optional<std::chrono::milliseconds> timeout{};
    /// Names the operation in errors and dumps ("bucket 3"), which show up to 100 and 40 bytes of this rank's, and 23
    /// of another one's. Native backend: the ranks of a collective compare it, by a hash that finds 255 of 256
    /// differences, and always those of one byte.
    std::string_view label{};
    /// For device memory. A group of the native backend refuses one.
    Stream stream{};
};

}  // namespace ddp

#pragma once
// The plain values of the worker library: element types, reductions, buffers. Standard library only.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace ddp {

enum class DType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, bf16, f32, f64 };

/// BAnd, BOr, BXor: integers only, native backend only.
/// Avg: floats only. The sum of P ranks is multiplied by 1/P, rounded to the type of the summation (f32 for f16 and
/// bf16 too). So unless P is a power of two, the last bit may differ from sum / P. NCCL multiplies before it adds, by
/// 1/P rounded to the buffer's type, which makes a larger difference for f16 and bf16.
enum class ReduceOp : std::uint8_t { Sum, Avg, Min, Max, Product, BAnd, BOr, BXor };

enum class Device : std::uint8_t { Cpu, Cuda };

enum class Backend : std::uint8_t { Auto, Native, Nccl };

/// Returns the bytes of one element; 0 for a value outside the enumeration.
[[nodiscard]] constexpr std::size_t size_of(DType type) {
    switch (type) {
        case DType::i8:
        case DType::u8: return 1;
        case DType::f16:
        case DType::bf16: return 2;
        case DType::i32:
        case DType::u32:
        case DType::f32: return 4;
        case DType::i64:
        case DType::u64:
        case DType::f64: return 8;
    }
    return 0;
}

[[nodiscard]] constexpr bool is_float(DType type) {
    return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

/// Return the names in errors and on command lines: "f32", "sum", "native".
[[nodiscard]] std::string_view to_string(DType type);
[[nodiscard]] std::string_view to_string(ReduceOp op);
[[nodiscard]] std::string_view to_string(Backend backend);

/// `count` elements of `dtype` in memory that the caller owns. It must stay valid until the operation is done.
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::f32;
    Device device = Device::Cpu;
    [[nodiscard]] std::size_t bytes() const { return count * size_of(dtype); }
};

/// The DType of a C++ type. Does not compile for a type that has none.
template <typename T>
inline constexpr DType dtype_of = [] {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>)
        return DType::f32;
    else if constexpr (std::is_same_v<U, double>)
        return DType::f64;
    else if constexpr (std::is_integral_v<U> && !std::is_same_v<U, bool>) {
        if constexpr (sizeof(U) == 1)
            return std::is_signed_v<U> ? DType::i8 : DType::u8;
        else if constexpr (sizeof(U) == 4)
            return std::is_signed_v<U> ? DType::i32 : DType::u32;
        else {
            static_assert(sizeof(U) == 8, "no ddp::DType for this type");
            return std::is_signed_v<U> ? DType::i64 : DType::u64;
        }
    } else {
        static_assert(std::is_same_v<U, float>, "no ddp::DType for this type");
        return DType::f32;
    }
}();

/// Returns host memory as a Buffer: ddp::buffer(std::span(values)).
template <typename T, std::size_t Extent>
[[nodiscard]] Buffer buffer(std::span<T, Extent> values) {
    return {values.data(), values.size(), dtype_of<T>, Device::Cpu};
}
template <typename T>
[[nodiscard]] Buffer buffer(T& scalar) requires std::is_arithmetic_v<T> {
    return {&scalar, 1, dtype_of<T>, Device::Cpu};
}

/// A cudaStream_t. null: host memory, or CUDA's legacy default stream.
struct Stream {
    void* handle = nullptr;
};

/// Options of one operation.
struct OpOptions {
    /// Deadline of the operation, from the call on. 0: the group's default; negative: Error{InvalidArgument}. A rank
    /// whose peer is itself waiting gets up to 3 s more, so that the rank closest to the cause reports first.
    std::chrono::milliseconds timeout{};
    /// Names the operation in errors and dumps ("bucket 3"), which show up to 100 and 40 bytes of it.
    std::string_view tag{};
};

}  // namespace ddp

#pragma once
// Buffer and ConstBuffer: the memory that an operation writes, and the memory that it only reads. Standard library
// only.

#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

#include "ddp/export.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// A type whose values collectives can send: one that has a DType.
template <typename T>
concept Element = detail::dtype_if_any<std::remove_cv_t<T>>()
.has_value();

/// The DType of a C++ type.
template <Element T>
inline constexpr DType dtype_of = *detail::dtype_if_any<std::remove_cv_t<T>>();

namespace detail {

/// Throws Error{InvalidArgument} unless the elements are `wanted`, in host memory.
void check_elements(DType found, DType wanted, Device device);

}  // namespace detail

/// `count` elements of `dtype`, in memory of the caller that must stay valid until the operation is done. Made from a
/// vector, an array, a span or a single variable of an Element type, or from a pointer and a count, it takes the type
/// from them:
///
///     group.all_reduce(values, op);           // std::vector<float> values
///     group.all_reduce(loss, op);             // double loss
///     group.all_reduce({pointer, 100}, op);   // float* pointer
///
/// A vector without a name is refused, because it would end before the operation does.
template <typename Memory>
struct BasicBuffer {
    Memory* data = nullptr;       ///< the first element
    std::size_t count = 0;        ///< elements
    DType dtype = DType::F32;     ///< of the elements
    Device device = Device::Cpu;  ///< where they are

    /// No memory: for a buffer that this rank does not use.
    constexpr BasicBuffer() = default;
    /// `count` elements from `data` on, of the pointer's type.
    template <Element T>
    requires std::convertible_to<T*, Memory*>
    constexpr BasicBuffer(T* first, std::size_t elements, Device where = Device::Cpu)
        : data(first), count(elements), dtype(dtype_of<T>), device(where) {}
    /// The same for a type that is known at run time.
    constexpr BasicBuffer(Memory* first, std::size_t elements, DType type, Device where = Device::Cpu)
        : data(first), count(elements), dtype(type), device(where) {}
    /// The elements of a vector, array or span.
    template <typename Range>
    requires std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
        std::ranges::borrowed_range<Range> && Element<std::ranges::range_value_t<Range>> &&
        std::convertible_to<std::add_pointer_t<std::ranges::range_reference_t<Range>>, Memory*> constexpr BasicBuffer(
            Range&& range)
        : BasicBuffer(std::ranges::data(range), static_cast<std::size_t>(std::ranges::size(range))) {}
    /// One variable. For an array pass the array, not its first element.
    template <Element T>
    requires std::convertible_to<T*, Memory*>
    constexpr BasicBuffer(T& variable) : BasicBuffer(std::addressof(variable), 1) {}
    template <Element T>
    constexpr BasicBuffer(const T&& value) = delete;
    /// A ConstBuffer of a Buffer's memory.
    template <std::same_as<void> Writable>
    requires std::is_const_v<Memory>
    constexpr BasicBuffer(const BasicBuffer<Writable>& other)
        : data(other.data), count(other.count), dtype(other.dtype), device(other.device) {}

    /// Returns the size of the memory.
    [[nodiscard]] constexpr std::size_t bytes() const { return count * size_of(dtype); }
    /// Returns the elements, which can be written only through a Buffer. Throws Error{InvalidArgument} if they are of
    /// another type than T, or device memory.
    template <Element T>
    [[nodiscard]] auto as() const {
        detail::check_elements(dtype, dtype_of<T>, device);
        using Member = std::conditional_t<std::is_const_v<Memory>, const T, T>;
        return std::span<Member>(static_cast<Member*>(data), count);
    }
};

/// Memory that an operation writes.
using Buffer = BasicBuffer<void>;
/// Memory that an operation only reads.
using ConstBuffer = BasicBuffer<const void>;

}  // namespace ddp

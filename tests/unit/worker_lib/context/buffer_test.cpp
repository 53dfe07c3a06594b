// Buffer and ConstBuffer: which memory they take, with which type, and which they refuse.

#include "ddp/buffer.hpp"

#include <array>
#include <list>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;

namespace {

template <typename To, typename... From>
constexpr bool kMakes = std::is_constructible_v<To, From...>;
template <typename To, typename From>
constexpr bool kConverts = std::is_convertible_v<From, To>;

// The type comes from the pointer: without one it must be given.
static_assert(kMakes<Buffer, float*, std::size_t> && kMakes<Buffer, void*, std::size_t, DType>);
static_assert(!kMakes<Buffer, void*, std::size_t> && !kMakes<ConstBuffer, const void*, std::size_t>);
static_assert(!kMakes<Buffer, long double*, std::size_t> && !kMakes<Buffer, void**, std::size_t>);

// Const memory is only read.
static_assert(!kMakes<Buffer, const float*, std::size_t> && kMakes<ConstBuffer, const float*, std::size_t>);
static_assert(!kConverts<Buffer, const std::vector<float>&> && kConverts<ConstBuffer, const std::vector<float>&>);
static_assert(!kConverts<Buffer, const float&> && kConverts<ConstBuffer, const float&>);
static_assert(!kConverts<Buffer, std::span<const float>> && kConverts<ConstBuffer, std::span<const float>>);
static_assert(!kConverts<Buffer, ConstBuffer> && kConverts<ConstBuffer, Buffer>);

// A vector or a value without a name would end before the operation does; a span does not own its elements.
static_assert(!kConverts<Buffer, std::vector<float>> && !kConverts<ConstBuffer, std::vector<float>>);
static_assert(!kConverts<ConstBuffer, float> && !kConverts<ConstBuffer, const float>);
static_assert(kConverts<Buffer, std::span<float>>);

static_assert(!kConverts<Buffer, std::list<float>&> && !kConverts<Buffer, std::vector<bool>&>);
static_assert(!kConverts<Buffer, std::vector<std::string>&> && !kConverts<Buffer, float*&>);
static_assert(std::is_trivially_copyable_v<Buffer> && std::is_trivially_copyable_v<ConstBuffer>);

/// Compares all members of a buffer of host memory.
void check(ConstBuffer buffer, const void* data, std::size_t count, DType type) {
    CHECK(buffer.data == data);
    CHECK(buffer.count == count);
    CHECK(buffer.dtype == type);
    CHECK(buffer.device == Device::Cpu);
    CHECK(buffer.bytes() == count * size_of(type));
}

}  // namespace

TEST_CASE("a buffer takes count and type from what it is made of", "[context][unit]") {
    std::vector<int> ints(3, 100'000'000);
    check(ints, ints.data(), 3, DType::I32);
    check({ints.data(), 2}, ints.data(), 2, DType::I32);
    std::array<double, 4> array{};
    check(array, array.data(), 4, DType::F64);
    std::uint64_t plain[5] = {};
    check(plain, plain, 5, DType::U64);
    check(std::span(plain).last(2), plain + 3, 2, DType::U64);
    float scalar = 1;
    check(scalar, &scalar, 1, DType::F32);
    const std::string text = "rank";
    check(text, text.data(), 4, dtype_of<char>);
    std::array<bool, 2> flags{};
    check(flags, flags.data(), 2, DType::Bool);
    std::int16_t small = 1;
    check(small, &small, 1, DType::I16);
    std::vector<std::uint16_t> words(2);
    check(words, words.data(), 2, DType::U16);
    std::vector<Float16> halves(3);
    check(halves, halves.data(), 3, DType::F16);
    std::vector<BFloat16> brains(3);
    check(brains, brains.data(), 3, DType::BF16);
    std::byte raw[8];
    check(raw, raw, 8, DType::U8);
    check({raw, 4, DType::BF16}, raw, 4, DType::BF16);
    check({}, nullptr, 0, DType::F32);
}

TEST_CASE("a buffer gives its elements in their own type only", "[context][unit]") {
    std::vector<double> values{1, 2};
    const Buffer buffer = values;
    buffer.as<double>()[1] = 3;
    CHECK(values == std::vector<double>{1, 3});
    static_assert(std::is_same_v<decltype(ConstBuffer(buffer).as<double>()), std::span<const double>>);
    CHECK(Buffer().as<float>().empty());
    CHECK_THROWS_WITH(buffer.as<float>(), "Buffer::as: the elements are f64, not f32. Ask for their type (dtype)");
    CHECK_THROWS_WITH(Buffer(values.data(), 2, Device::Cuda).as<double>(),
                      "Buffer::as: the elements are device memory. Copy them to the host");
}

TEST_CASE("a list is numbers in braces, a vector, an array or a span", "[context][unit]") {
    const auto sum = [](List<std::size_t> list) {
        std::size_t total = 0;
        for (const std::size_t one : list.elements()) total += one;
        return total;
    };
    CHECK(sum({}) == 0);
    CHECK(sum({1, 2, 3}) == 6);
    const std::vector<std::size_t> vector{4, 5};
    CHECK(sum(vector) == 9);
    CHECK(sum(std::vector<std::size_t>{6}) == 6);
    CHECK(sum(std::array<std::size_t, 2>{7, 8}) == 15);
    CHECK(sum(std::span(vector)) == 9);
}

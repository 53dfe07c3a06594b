// Reductions on the device against the native backend, over the same values on the same ranks: the group's own twin
// for host memory (docs/design/036-control-group.md) is the oracle. Integers have to be equal bit for bit, floats
// within one unit in the last place for each rank.

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

constexpr std::size_t kCount = 10'007;

/// Returns values that differ by rank and index. Floats are between 0.5 and 1.5 with all their bits in use: sums of
/// several ranks are rounded, and no difference of large numbers makes the error relative to the result unbounded.
template <typename T>
std::vector<T> values_of(int rank) {
    std::vector<T> values(kCount);
    std::uint64_t state = 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(rank + 1);
    for (T& value : values) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if constexpr (std::is_integral_v<T>)
            value = static_cast<T>(state);
        else
            value = static_cast<T>(0.5f + static_cast<float>(state >> 40) / static_cast<float>(1 << 24));
    }
    return values;
}

/// Returns the distance of a float to the next one of its type, at `value`.
template <typename T>
double unit_at(double value) {
    constexpr int kMantissa = dtype_of<T> == DType::F64    ? 52
                              : dtype_of<T> == DType::F32  ? 23
                              : dtype_of<T> == DType::BF16 ? 7
                                                           : 10;
    return std::ldexp(1.0, std::ilogb(value) - kMantissa);
}

template <typename T>
double number(T value) {
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(value);
    else
        return static_cast<double>(static_cast<float>(value));
}

template <typename T>
bool agrees(T found, T expected, int ranks) {
    if constexpr (std::is_integral_v<T>) return found == expected;
    return std::abs(number(found) - number(expected)) <= ranks * unit_at<T>(number(expected));
}

/// Returns where the two results differ first; empty: nowhere.
template <typename T>
std::string difference(const char* what, ReduceOp op, const std::vector<T>& found, const std::vector<T>& expected,
                       int ranks) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!agrees(found[i], expected[i], ranks))
            return fmt::format("{} {} of {}: element {} is {}, not {}; ", what, to_string(op), to_string(dtype_of<T>),
                               i, number(found[i]), number(expected[i]));
    }
    return "";
}

template <typename T>
std::string differences(Context& context) {
    ProcessGroup& world = context.world();
    Gpu gpu(context.local_rank());
    const OpOptions on_device{.stream = gpu.stream()};
    const int ranks = world.size();
    const std::vector<T> own = values_of<T>(world.rank());
    std::string all;
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
        if (op == ReduceOp::Avg && std::is_integral_v<T>) continue;
        std::vector<T> expected = own;
        world.all_reduce(expected, op).wait();
        const Buffer buffer = gpu.to_device(own);
        world.all_reduce(buffer, op, on_device).wait();
        all += difference("all_reduce", op, gpu.to_host<T>(buffer), expected, ranks);

        const std::size_t part = kCount / static_cast<std::size_t>(ranks);
        const std::vector<T> whole(own.begin(),
                                   own.begin() + static_cast<std::ptrdiff_t>(part * static_cast<std::size_t>(ranks)));
        std::vector<T> expected_part(part);
        world.reduce_scatter(whole, expected_part, op).wait();
        const std::vector<T> zeros(part);
        const Buffer in = gpu.to_device(whole), out = gpu.to_device(zeros);
        world.reduce_scatter(in, out, op, on_device).wait();
        all += difference("reduce_scatter", op, gpu.to_host<T>(out), expected_part, ranks);
    }
    return all;
}

}  // namespace

TEMPLATE_TEST_CASE("gpu: reductions of several ranks equal those of the native backend", "[gpu][ranks][oracle]",
                   std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, Float16,
                   BFloat16, float, double) {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) { return differences<TestType>(context); }) == "");
}

// Uses the kernels of worker_lib/src/kernels, which are compiled for speed: a reduction of one source only converts.
#include "worker_lib/src/reducer/values.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "worker_lib/src/kernels/reduce.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {
namespace {

constexpr std::size_t kBlock = 1024;  // elements; their accumulators stay in the first-level cache

}  // namespace

void scale(const Buffer& values, double factor) {
    if (factor == 1) return;
    const ScopedFloatEnvironment floats;
    const Reduction& table = lookup(values.dtype, ReduceOp::Sum);
    if (table.accumulator_bytes == size_of(values.dtype)) {
        table.finish(values.data, values.count, factor, values.data);
        return;
    }
    std::array<float, kBlock> block;
    for (std::size_t start = 0; start < values.count; start += kBlock) {
        const std::size_t count = std::min(kBlock, values.count - start);
        void* at = static_cast<std::byte*>(values.data) + start * size_of(values.dtype);
        const void* source = at;
        table.reduce(&source, 1, count, block.data());
        table.finish(block.data(), count, factor, at);
    }
}

void narrow(const Buffer& gradient, const Buffer& wire) {
    assert(gradient.dtype == DType::F32 && gradient.count == wire.count);
    const ScopedFloatEnvironment floats;
    lookup(wire.dtype, ReduceOp::Sum).finish(gradient.data, gradient.count, 1, wire.data);
}

void widen(const Buffer& wire, const Buffer& gradient) {
    assert(gradient.dtype == DType::F32 && gradient.count == wire.count);
    const ScopedFloatEnvironment floats;
    const void* source = wire.data;
    lookup(wire.dtype, ReduceOp::Sum).reduce(&source, 1, wire.count, gradient.data);
}

}  // namespace ddp::detail

#include "tests/unit/worker_lib/fake_collective.hpp"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

namespace ddp::test {
namespace {

template <typename T>
T combine(ncclRedOp_t op, T a, T b) {
    switch (op) {
        case ncclProd: return a * b;
        case ncclMax: return std::max(a, b);
        case ncclMin: return std::min(a, b);
        default: return a + b;
    }
}

template <typename T>
void reduce(const FakeCollective& collective, int size) {
    for (std::size_t i = 0; i < collective.count; ++i) {
        std::optional<T> result;
        for (const auto& [rank, place] : collective.places) {
            const T value = static_cast<const T*>(place.in)[i];
            result = result ? combine(*collective.op, *result, value) : value;
        }
        if (*collective.op == ncclAvg) *result /= static_cast<T>(size);
        for (const auto& [rank, place] : collective.places) static_cast<T*>(place.out)[i] = *result;
    }
}

}  // namespace

void FakeCollective::compute(int size) const {
    assert(type == ncclFloat32 || type == ncclInt32);  // all that the tests use
    if (!op) {
        for (const auto& [rank, place] : places) std::memmove(place.out, places.at(root).in, count * 4);
    } else if (type == ncclFloat32) {
        reduce<float>(*this, size);
    } else {
        reduce<std::int32_t>(*this, size);
    }
}

}  // namespace ddp::test

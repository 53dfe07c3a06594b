#include "tests/unit/worker_lib/nccl/fake_collective.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ddp/float16.hpp"

namespace ddp::test {
namespace {

template <typename T>
T wide(T value) {
    return value;
}
float wide(Float16 value) { return value; }
float wide(BFloat16 value) { return value; }

template <typename T, typename Wide>
void store(T& to, Wide value) {
    to = static_cast<T>(value);
}
void store(Float16& to, float value) { to = Float16(value); }
void store(BFloat16& to, float value) { to = BFloat16(value); }

template <typename T>
T combine(ncclRedOp_t op, T a, T b) {
    switch (op) {
        case ncclProd: return static_cast<T>(a * b);
        case ncclMax: return std::max(a, b);
        case ncclMin: return std::min(a, b);
        default: return static_cast<T>(a + b);
    }
}

template <typename T>
T* at(const void* memory, std::size_t index) {
    return static_cast<T*>(const_cast<void*>(memory)) + index;
}

/// Returns element `index` of the reduction of all ranks' inputs.
template <typename T>
auto reduced(const FakeCollective& collective, std::size_t index) {
    auto buffers = collective.rank_buffers.begin();
    auto result = wide(*at<T>(buffers->second.in, index));
    while (++buffers != collective.rank_buffers.end())
        result = combine(collective.call.op, result, wide(*at<T>(buffers->second.in, index)));
    using Wide = decltype(result);
    return collective.call.op == ncclAvg ? static_cast<Wide>(result / static_cast<Wide>(collective.rank_buffers.size()))
                                         : result;
}

template <typename T>
void reduce(const FakeCollective& collective) {
    const auto& [kind, count, type, op, root] = collective.call;
    if (kind == FakeKind::kReduceScatter) {
        for (const auto& [rank, buffers] : collective.rank_buffers) {
            for (std::size_t i = 0; i < count; ++i)
                store(*at<T>(buffers.out, i), reduced<T>(collective, static_cast<std::size_t>(rank) * count + i));
        }
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const auto result = reduced<T>(collective, i);
        for (const auto& [rank, buffers] : collective.rank_buffers) {
            if (kind == FakeKind::kAllReduce || rank == root) store(*at<T>(buffers.out, i), result);
        }
    }
}

}  // namespace

std::size_t width_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8: return 1;
        case ncclFloat16:
        case ncclBfloat16: return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32: return 4;
        default: return 8;
    }
}

void FakeCollective::compute() const {
    const std::size_t bytes = call.count * width_of(call.type);
    if (call.kind == FakeKind::kBroadcast) {
        for (const auto& [rank, buffers] : rank_buffers)
            std::memmove(buffers.out, rank_buffers.at(call.root).in, bytes);
        return;
    }
    if (call.kind == FakeKind::kAllGather) {
        for (const auto& [rank, to] : rank_buffers) {
            for (const auto& [source, from] : rank_buffers)
                std::memmove(at<std::byte>(to.out, static_cast<std::size_t>(source) * bytes), from.in, bytes);
        }
        return;
    }
    switch (call.type) {
        case ncclInt8: return reduce<std::int8_t>(*this);
        case ncclUint8: return reduce<std::uint8_t>(*this);
        case ncclInt32: return reduce<std::int32_t>(*this);
        case ncclUint32: return reduce<std::uint32_t>(*this);
        case ncclInt64: return reduce<std::int64_t>(*this);
        case ncclUint64: return reduce<std::uint64_t>(*this);
        case ncclFloat16: return reduce<Float16>(*this);
        case ncclBfloat16: return reduce<BFloat16>(*this);
        case ncclFloat32: return reduce<float>(*this);
        case ncclFloat64: return reduce<double>(*this);
        default: std::abort();
    }
}

void FakeMessage::carry() {
    if (done || !sender.here || !receiver.here) return;
    if (sender.count != receiver.count || sender.type != receiver.type) return;
    std::memmove(receiver.data, sender.data, sender.count * width_of(sender.type));
    done = true;
}

}  // namespace ddp::test

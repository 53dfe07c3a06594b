#include "worker_lib/bench/pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "ddp/float16.hpp"

namespace ddp::bench {
namespace {

/// Returns element i of rank r's input. Products of many ranks must stay small, so most factors are 1.
std::int64_t given(const Call& call, int rank, std::size_t i) {
    const auto mixed = static_cast<std::int64_t>((static_cast<std::size_t>(rank) * 7 + i) % 11);
    if (call.op == ReduceOp::Product && reduces(call.collective)) return mixed == 0 ? 2 : 1;
    return mixed;
}

std::int64_t combine(ReduceOp op, std::int64_t a, std::int64_t b) {
    switch (op) {
        case ReduceOp::Sum:
        case ReduceOp::Avg: return a + b;
        case ReduceOp::Product: return a * b;
        case ReduceOp::Min: return std::min(a, b);
        case ReduceOp::Max: return std::max(a, b);
        case ReduceOp::BitAnd: return a & b;
        case ReduceOp::BitOr: return a | b;
        case ReduceOp::BitXor: return a ^ b;
    }
    return 0;
}

/// Returns element i of the reduction of all ranks' inputs.
double reduced(const Call& call, std::size_t i) {
    std::int64_t value = given(call, 0, i);
    for (int r = 1; r < call.ranks; ++r) value = combine(call.op, value, given(call, r, i));
    return call.op == ReduceOp::Avg ? static_cast<double>(value) / call.ranks : static_cast<double>(value);
}

/// Returns element i of all ranks' parts in rank order.
double gathered(const Call& call, std::size_t i) {
    int from = 0;
    while (i >= call.offset(from + 1)) ++from;
    return static_cast<double>(given(call, from, i - call.offset(from)));
}

/// Returns element i of all_to_all_v's output: rank r sends part k to the k-th rank after it.
double exchanged(const Call& call, std::size_t i) {
    int from = 0;
    int after = call.rank;
    for (; i >= call.part(after); after = (after + call.ranks - 1) % call.ranks, ++from) i -= call.part(after);
    std::size_t before = 0;  // offset in rank `from`'s input: its parts for the ranks below this one
    for (int r = 0; r < call.rank; ++r) before += call.part((r - from + call.ranks) % call.ranks);
    return static_cast<double>(given(call, from, before + i));
}

/// Returns element i of this rank's output.
double expected(const Call& call, std::size_t i) {
    const std::size_t own = call.offset(call.rank);
    switch (call.collective) {
        case Collective::kAllReduce:
        case Collective::kReduce: return reduced(call, i);
        case Collective::kReduceScatter: return reduced(call, own + i);
        case Collective::kBroadcast: return static_cast<double>(given(call, call.root, i));
        case Collective::kSendRecv: return static_cast<double>(given(call, call.previous(), i));
        case Collective::kScatter:
        case Collective::kScatterV: return static_cast<double>(given(call, call.root, own + i));
        case Collective::kAllGather:
        case Collective::kGather:
        case Collective::kAllGatherV:
        case Collective::kGatherV: return gathered(call, i);
        case Collective::kAllToAll: {
            const std::size_t part = call.part();
            return static_cast<double>(given(call, static_cast<int>(i / part), own + i % part));
        }
        case Collective::kAllToAllV: return exchanged(call, i);
        case Collective::kBarrier: return 0;
    }
    return 0;
}

/// Calls use(pointer to the elements, in their C++ type).
template <typename Use>
auto with_type(const Buffer& buffer, Use use) {
    switch (buffer.dtype) {
        case DType::I8: return use(static_cast<std::int8_t*>(buffer.data));
        case DType::U8: return use(static_cast<std::uint8_t*>(buffer.data));
        case DType::I16: return use(static_cast<std::int16_t*>(buffer.data));
        case DType::U16: return use(static_cast<std::uint16_t*>(buffer.data));
        case DType::I32: return use(static_cast<std::int32_t*>(buffer.data));
        case DType::U32: return use(static_cast<std::uint32_t*>(buffer.data));
        case DType::I64: return use(static_cast<std::int64_t*>(buffer.data));
        case DType::U64: return use(static_cast<std::uint64_t*>(buffer.data));
        case DType::F16: return use(static_cast<Float16*>(buffer.data));
        case DType::BF16: return use(static_cast<BFloat16*>(buffer.data));
        case DType::F64: return use(static_cast<double*>(buffer.data));
        case DType::F32:
        case DType::Bool: break;  // no option chooses it
    }
    return use(static_cast<float*>(buffer.data));
}

template <typename T>
void store(T& to, std::int64_t value) {
    to = static_cast<T>(value);
}
void store(Float16& to, std::int64_t value) { to = Float16(static_cast<float>(value)); }
void store(BFloat16& to, std::int64_t value) { to = BFloat16(static_cast<float>(value)); }

/// Returns whether `got` is right. Averages are rounded to the type, `roundings` times; sums beyond the range of a
/// small type wrap or are rounded as well.
template <typename T>
bool is(T got, double wanted, int roundings) {
    if constexpr (std::is_integral_v<T>)
        return got == static_cast<T>(static_cast<std::int64_t>(wanted));
    else
        return std::abs(static_cast<double>(got) - wanted) <= roundings * 1e-6 * std::abs(wanted);
}
bool is(Float16 got, double wanted, int roundings) {
    return std::abs(got - wanted) <= roundings * 0x1p-10 * std::abs(wanted);
}
bool is(BFloat16 got, double wanted, int roundings) {
    return std::abs(got - wanted) <= roundings * 0x1p-7 * std::abs(wanted);
}

/// Returns how many roundings to allow for NCCL, which divides each rank's input, in the type, before it adds them. Not
/// one per rank: errors have either sign, and with that bound a bf16 result of 0 would pass from 128 ranks on.
int nccl_roundings(int ranks) {
    const int doublings = std::bit_width(static_cast<unsigned>(ranks)) - 1;
    return std::min(ranks, 1 + 2 * doublings);
}

}  // namespace

void fill_input(const Call& call, const Buffer& in) {
    with_type(in, [&](auto* elements) {
        for (std::size_t i = 0; i < in.count; ++i) store(elements[i], given(call, call.rank, i));
    });
}

std::size_t count_wrong(const Call& call, const Buffer& out, Backend backend) {
    const bool averages = reduces(call.collective) && call.op == ReduceOp::Avg;
    const int roundings = averages && backend == Backend::Nccl ? nccl_roundings(call.ranks) : 1;
    return with_type(out, [&](const auto* elements) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < out.count; ++i) wrong += is(elements[i], expected(call, i), roundings) ? 0 : 1;
        return wrong;
    });
}

}  // namespace ddp::bench

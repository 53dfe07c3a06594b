// Every collective of the NCCL backend over the fake GPU, against a scalar reference: apart and in place, for counts
// that divide and that do not, with every root.

#include <fmt/format.h>

#include "ddp/float16.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "tests/unit/worker_lib/support/moved_bytes.hpp"
#include "worker_lib/src/nccl/types.hpp"

using namespace ddp;
using namespace ddp::test;
using ddp::testing::append;
using ddp::testing::Counts;
using ddp::testing::difference;
using ddp::testing::part_of;
using ddp::testing::uneven_counts;

namespace {

using Bytes = std::vector<std::byte>;
constexpr std::byte kUntouched{0x5a};

/// `value` as an element of the type.
Bytes element(double value, DType type) {
    const auto bytes = [](auto converted) {
        Bytes raw(sizeof converted);
        std::memcpy(raw.data(), &converted, sizeof converted);
        return raw;
    };
    switch (type) {
        case DType::I8: return bytes(static_cast<std::int8_t>(value));
        case DType::U8: return bytes(static_cast<std::uint8_t>(value));
        case DType::Bool: return bytes(value != 0);
        case DType::I16: return bytes(static_cast<std::int16_t>(value));
        case DType::U16: return bytes(static_cast<std::uint16_t>(value));
        case DType::I32: return bytes(static_cast<std::int32_t>(value));
        case DType::U32: return bytes(static_cast<std::uint32_t>(value));
        case DType::I64: return bytes(static_cast<std::int64_t>(value));
        case DType::U64: return bytes(static_cast<std::uint64_t>(value));
        case DType::F16: return bytes(Float16(static_cast<float>(value)));
        case DType::BF16: return bytes(BFloat16(static_cast<float>(value)));
        case DType::F32: return bytes(static_cast<float>(value));
        case DType::F64: return bytes(value);
    }
    return {};
}

/// Returns element i of rank r's input; products of three fit every type.
double given(int rank, std::size_t i) { return static_cast<double>((static_cast<std::size_t>(rank) * 3 + i) % 5 + 1); }

double reduced(ReduceOp op, int ranks, std::size_t i) {
    double result = given(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
        const double value = given(rank, i);
        result = op == ReduceOp::Min       ? std::min(result, value)
                 : op == ReduceOp::Max     ? std::max(result, value)
                 : op == ReduceOp::Product ? result * value
                                           : result + value;
    }
    return op == ReduceOp::Avg ? result / ranks : result;
}

template <typename Value>
Bytes elements(std::size_t count, DType type, Value value) {
    Bytes all;
    for (std::size_t i = 0; i < count; ++i) append(all, element(value(i), type));
    return all;
}

/// `count` elements from element `first` on.
Buffer at(Bytes& memory, std::size_t first, std::size_t count, DType type) {
    return {memory.data() + first * size_of(type), count, type, Device::Cuda};
}
Buffer all_of(Bytes& memory, DType type) { return at(memory, 0, memory.size() / size_of(type), type); }

struct Case {
    std::size_t count;
    DType type;
    ReduceOp op;
    bool in_place;
};

std::string check(std::string_view what, const Case& one, const Bytes& got, const Bytes& wanted) {
    const std::string wrong = difference(got.data(), wanted);
    if (wrong.empty()) return {};
    return fmt::format("{} {} {}[{}], in place {}: {}\n", what, to_string(one.op), to_string(one.type), one.count,
                       one.in_place, wrong);
}

std::string reduce_in_all_ways(ProcessGroup& group, const Case& one) {
    const auto& [count, type, op, in_place] = one;
    const auto own = [&](std::size_t i) { return given(group.rank(), i); };
    const auto sum = [&, op = op](std::size_t i) { return reduced(op, group.size(), i); };
    const Bytes input = elements(count, type, own);
    const Bytes sums = elements(count, type, sum);
    std::string wrong;
    Bytes in = input;
    Bytes out(in.size(), kUntouched);
    (in_place ? group.all_reduce(all_of(in, type), op) : group.all_reduce(all_of(in, type), all_of(out, type), op))
        .wait_host();
    wrong += check("all_reduce", one, in_place ? in : out, sums);
    for (int root = 0; root < group.size(); ++root) {
        in = input;
        group.reduce(all_of(in, type), all_of(in_place ? in : out, type), op, root).wait_host();
        const bool gets = root == group.rank();
        if (gets) wrong += check("reduce", one, in_place ? in : out, sums);
        if (!gets || !in_place) wrong += check("reduce, input", one, in, input);
    }
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t first = static_cast<std::size_t>(group.rank()) * count;
    const Bytes whole = elements(ranks * count, type, own);
    Bytes memory = whole;
    Bytes part(input.size(), kUntouched);
    group.reduce_scatter(all_of(memory, type), in_place ? at(memory, first, count, type) : all_of(part, type), op)
        .wait_host();
    Bytes expected = whole;
    const Bytes own_part = elements(count, type, [&](std::size_t i) { return sum(first + i); });
    if (in_place)
        std::copy(own_part.begin(), own_part.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(first * size_of(type)));
    if (!in_place) wrong += check("reduce_scatter", one, part, own_part);
    return wrong + check("reduce_scatter, whole", one, memory, expected);
}

/// gather for each root, and all_gather as what it is for everybody (root -1).
std::string gather(ProcessGroup& group, const Counts& counts, bool v, const Case& one) {
    const DType type = one.type;
    const auto rank = static_cast<std::size_t>(group.rank());
    const Bytes own = part_of(group.rank(), -1, counts[rank], type);
    Bytes whole;
    std::size_t first = 0;
    for (int other = 0; other < group.size(); ++other) {
        if (other == group.rank()) first = whole.size() / size_of(type);
        append(whole, part_of(other, -1, counts[static_cast<std::size_t>(other)], type));
    }
    std::string wrong;
    for (int root = -1; root < group.size(); ++root) {
        const bool gets = root < 0 || root == group.rank();
        Bytes out(whole.size(), kUntouched);
        Bytes apart = own;
        const bool in_place = one.in_place && gets;
        if (in_place)
            std::copy(own.begin(), own.end(), out.begin() + static_cast<std::ptrdiff_t>(first * size_of(type)));
        const Buffer in = in_place ? at(out, first, counts[rank], type) : all_of(apart, type);
        const Buffer to = gets ? all_of(out, type) : Buffer{};
        if (root < 0) {
            (v ? group.all_gather_v(in, to, counts) : group.all_gather(in, to)).wait_host();
        } else {
            (v ? group.gather_v(in, to, counts, root) : group.gather(in, to, root)).wait_host();
        }
        wrong += check("gather", one, out, gets ? whole : Bytes(whole.size(), kUntouched));
        wrong += check("gather, input", one, apart, own);
    }
    return wrong;
}

std::string scatter(ProcessGroup& group, const Counts& counts, bool v, const Case& one) {
    const DType type = one.type;
    const auto rank = static_cast<std::size_t>(group.rank());
    std::string wrong;
    for (int root = 0; root < group.size(); ++root) {
        Bytes whole;
        std::size_t first = 0;
        for (int other = 0; other < group.size(); ++other) {
            if (other == group.rank()) first = whole.size() / size_of(type);
            append(whole, part_of(root, other, counts[static_cast<std::size_t>(other)], type));
        }
        const Bytes own = part_of(root, group.rank(), counts[rank], type);
        const bool gives = root == group.rank();
        Bytes memory = whole;
        Bytes out(own.size(), kUntouched);
        const Buffer in = gives ? all_of(memory, type) : Buffer{};
        const bool in_place = one.in_place && gives;
        const Buffer to = in_place ? at(memory, first, counts[rank], type) : all_of(out, type);
        (v ? group.scatter_v(in, to, counts, root) : group.scatter(in, to, root)).wait_host();
        if (!in_place) wrong += check("scatter", one, out, own);
        wrong += check("scatter, whole", one, memory, whole);
    }
    return wrong;
}

/// Returns the count that rank `source` sends to `destination`: the same for all pairs, or uneven with many zeros.
std::size_t count_of(int source, int destination, std::size_t scale, bool v) {
    const int pattern = (source * 5 + destination * 3) % 4;
    return !v ? scale : pattern == 0 ? 0 : scale * static_cast<std::size_t>(pattern) + static_cast<std::size_t>(source);
}

std::string all_to_all(ProcessGroup& group, bool v, const Case& one) {
    const DType type = one.type;
    Counts sends;
    Counts receives;
    Bytes input;
    Bytes wanted;
    for (int other = 0; other < group.size(); ++other) {
        sends.push_back(count_of(group.rank(), other, one.count, v));
        receives.push_back(count_of(other, group.rank(), one.count, v));
        append(input, part_of(group.rank(), other, sends.back(), type));
        append(wanted, part_of(other, group.rank(), receives.back(), type));
    }
    Bytes in = input;
    Bytes out(wanted.size(), kUntouched);
    (v ? group.all_to_all_v(all_of(in, type), sends, all_of(out, type), receives)
       : group.all_to_all(all_of(in, type), all_of(out, type)))
        .wait_host();
    return check("all_to_all", one, out, wanted) + check("all_to_all, input", one, in, input);
}

}  // namespace

TEST_CASE("nccl: what reduces gives the sums of a scalar loop, for every type and reduction", "[nccl]") {
    const int size = GENERATE(1, 2, 3);
    CAPTURE(size);
    FakeGroup ranks(size);
    CHECK(ranks.complaints([](ProcessGroup& group) {
        std::string wrong;
        for (const DType type : {DType::Bool, DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64,
                                 DType::F16, DType::BF16, DType::F32, DType::F64}) {
            for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
                if (op == ReduceOp::Avg && !is_float(type)) continue;
                for (const std::size_t count : {0u, 1u, 7u}) {
                    for (const bool in_place : {false, true})
                        wrong += reduce_in_all_ways(group, {count, type, op, in_place});
                }
            }
        }
        return wrong;
    }) == "");
}

TEST_CASE("nccl: what moves brings each part to its place", "[nccl]") {
    const int size = GENERATE(1, 2, 4);
    CAPTURE(size);
    FakeGroup ranks(size);
    CHECK(ranks.complaints([](ProcessGroup& group) {
        std::string wrong;
        for (const std::size_t count : {0u, 1u, 7u}) {
            const Counts equal(static_cast<std::size_t>(group.size()), count);
            const Counts uneven = count == 0 ? equal : uneven_counts(group.size(), count);
            for (const DType type : {DType::Bool, DType::I16, DType::BF16, DType::F64}) {
                for (const bool in_place : {false, true}) {
                    const Case one{count, type, ReduceOp::Sum, in_place};
                    wrong += gather(group, equal, false, one) + gather(group, uneven, true, one);
                    wrong += scatter(group, equal, false, one) + scatter(group, uneven, true, one);
                }
                for (const bool v : {false, true}) wrong += all_to_all(group, v, {count, type, ReduceOp::Sum, false});
            }
        }
        return wrong;
    }) == "");
    CHECK(ranks.gpu.counts().open_groups == 0);
}

TEST_CASE("nccl: a collective is one step on the device, and none if it moves nothing", "[nccl]") {
    FakeGroup ranks(1);
    ProcessGroup group = ranks.world(0);
    Bytes in(8), out(8);
    const Counts counts{2};
    const auto launches_of = [&](Work work) {
        work.wait_host();
        static int before = 0;
        return ranks.gpu.counts().launches - std::exchange(before, ranks.gpu.counts().launches);
    };
    const Buffer from = all_of(in, DType::F32);
    const Buffer to = all_of(out, DType::F32);
    CHECK(launches_of(group.gather_v(from, to, counts, 0)) == 1);
    CHECK(launches_of(group.scatter(from, to, 0)) == 1);
    CHECK(launches_of(group.all_to_all(from, to)) == 1);
    CHECK(launches_of(group.all_gather_v(from, to, counts)) == 1);
    CHECK(launches_of(group.all_gather(from, to)) == 1);
    CHECK(launches_of(group.gather(to, to, 0)) == 0);  // it lies there
    const Buffer nothing{nullptr, 0, DType::F32, Device::Cuda};
    CHECK(launches_of(group.reduce(nothing, nothing, ReduceOp::Sum, 0)) == 0);
    CHECK(launches_of(group.reduce_scatter(nothing, nothing, ReduceOp::Sum)) == 0);
    CHECK(launches_of(group.all_to_all(nothing, nothing)) == 0);
}

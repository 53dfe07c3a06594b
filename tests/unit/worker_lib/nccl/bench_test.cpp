// ddp-bench on NCCL, over the fake GPU: every row, looked at through copies to the host.

#include "ddp/float16.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/bench/measure.hpp"
#include "worker_lib/bench/pattern.hpp"
#include "worker_lib/bench/report.hpp"
#include "worker_lib/bench/run.hpp"
#include "worker_lib/src/cuda/device_access.hpp"

using namespace ddp;
using namespace ddp::bench;
using namespace ddp::test;

namespace {

/// The device's, but it counts, and spoils one copy.
class Spy final : public detail::DeviceAccess {
public:
    Spy(FakeGroup& ranks, int rank) : real_(detail::open_device(ranks.gpu.api().cuda, rank)) {}
    Stream stream() const override { return real_->stream(); }
    void copy(void* to, const void* from, std::size_t bytes) override {
        real_->copy(to, from, bytes);
        if (++copies == spoilt) static_cast<unsigned char*>(to)[0] ^= 1;
    }
    void mark() override {
        ++marks;
        real_->mark();
    }
    bool passed() override { return real_->passed(); }

    int copies = 0;
    int marks = 0;   ///< apart from those of copies
    int spoilt = 0;  ///< the so-manieth copy

private:
    const std::unique_ptr<detail::DeviceAccess> real_;
};

Options quick() {
    Options options;
    options.iterations = 7;
    options.warm_up = 1;
    options.min_bytes = 0;
    options.max_bytes = 2048;
    options.factor = 64;
    return options;
}

Call some_call(const ProcessGroup& group) {
    return {.collective = Collective::kAllReduce,
            .count = 50,
            .dtype = DType::I32,
            .rank = group.rank(),
            .ranks = group.size()};
}

}  // namespace

TEST_CASE("ddp-bench measures every row on NCCL, and finds nothing wrong", "[nccl][bench]") {
    const int size = GENERATE(1, 3);
    const bool rewrite = GENERATE(false, true);
    const DType dtype = GENERATE(DType::U8, DType::BF16, DType::F64);
    CAPTURE(size, rewrite, to_string(dtype));
    FakeGroup ranks(size);
    CHECK(ranks.complaints([&](ProcessGroup& group) -> std::string {
        Options options = quick();
        options.collectives.assign(kAllCollectives.begin(), kAllCollectives.end());
        options.rewrite = rewrite;
        options.dtype = dtype;
        options.root = group.size() - 1;
        Spy device(ranks, group.rank());
        std::vector<bench::Row> rows;
        run(group, options, &device, rows, [](const bench::Row&, bool) {});
        std::string wrong;
        int measured = 0;
        for (const bench::Row& row : rows) {
            for (const auto& one : {row.out_of_place, row.in_place}) {
                if (!one) continue;
                ++measured;
                const bool looked_at = one->checked == (row.call.collective != Collective::kBarrier);
                const bool timed = one->us.mean > 0 && one->us.median.has_value() == rewrite;
                if (one->wrong != 0 || !looked_at || !timed) wrong += name_of(row.call.collective);
            }
        }
        if (rows.size() < (kAllCollectives.size() - 1) * 2 + 1) wrong += " rows are missing";  // barrier has one
        if (device.marks != (rewrite ? 0 : measured)) wrong += " calls were waited for one by one";
        return wrong;
    }) == "");
}

TEST_CASE("ddp-bench's times on NCCL are the slowest rank's, on all ranks", "[nccl][bench]") {
    FakeGroup ranks(3);
    std::vector<double> means(3);
    CHECK(ranks.complaints([&](ProcessGroup& group) -> std::string {
        Spy device(ranks, group.rank());
        Memory memory(group, 256, false, &device);
        means[static_cast<std::size_t>(group.rank())] = measure(group, some_call(group), memory, quick()).us.mean;
        std::vector<double> values{static_cast<double>(group.rank()), static_cast<double>(-group.rank())};
        memory.take_largest(values);
        return values == std::vector<double>{2, 0} && memory.sum(5) == 15 ? "" : "of some other rank";
    }) == "");
    CHECK(means == std::vector<double>(3, means[0]));
}

TEST_CASE("ddp-bench counts what is wrong on any device", "[nccl][bench]") {
    FakeGroup ranks(2);
    std::vector<std::size_t> wrong(2);
    CHECK(ranks.complaints([&](ProcessGroup& group) -> std::string {
        Spy device(ranks, group.rank());
        Memory memory(group, 256, false, &device);
        if (group.rank() == 1) device.spoilt = 4;  // after the input twice and the junk: the result
        wrong[static_cast<std::size_t>(group.rank())] = measure(group, some_call(group), memory, quick()).wrong;
        return "";
    }) == "");
    CHECK(wrong == std::vector<std::size_t>{1, 1});
}

TEST_CASE("ddp-bench finds a call in place that does nothing, after one that did the same apart", "[nccl][bench]") {
    FakeGroup ranks(3);
    const auto collective =
        GENERATE(Collective::kAllGather, Collective::kGather, Collective::kScatter, Collective::kAllGatherV,
                 Collective::kGatherV, Collective::kScatterV, Collective::kReduceScatter, Collective::kBroadcast);
    CAPTURE(name_of(collective));
    std::atomic<std::size_t> wrong = 0;
    CHECK(ranks.complaints([&](ProcessGroup& group) -> std::string {
        Spy device(ranks, group.rank());
        Memory memory(group, 256, false, &device);
        Call call = some_call(group);
        call.collective = collective;
        call.count = 48;
        if (has_out_of_place(collective) && measure(group, call, memory, quick()).wrong != 0) return "already apart";
        group.barrier().wait();
        ranks.gpu.loses_data = true;
        call.in_place = true;
        wrong += measure(group, call, memory, quick()).wrong;
        return "";
    }) == "");
    CHECK(wrong > 0);
}

TEST_CASE("ddp-bench allows NCCL's averages more roundings than the native backend's, and a sum none",
          "[nccl][bench]") {
    const Call call{.count = 1, .dtype = DType::F16, .op = ReduceOp::Avg, .ranks = 8};
    Call sum = call;
    sum.op = ReduceOp::Sum;
    // Element 0 of the ranks: 0 7 3 10 6 2 9 5.
    const auto wrong = [](const Call& of, float value, Backend backend) {
        Float16 element(value);
        return count_wrong(of, {&element, 1, DType::F16, Device::Cpu}, backend);
    };
    CHECK(wrong(call, 5.25f, Backend::Nccl) == 0);
    CHECK(wrong(call, 5.25f + 4 * 0x1p-8f, Backend::Nccl) == 0);  // units in the last place
    CHECK(wrong(call, 5.25f + 12 * 0x1p-8f, Backend::Nccl) == 1);
    CHECK(wrong(call, 5.25f + 0x1p-8f, Backend::Native) == 0);
    CHECK(wrong(call, 5.25f + 2 * 0x1p-8f, Backend::Native) == 1);
    CHECK(wrong(sum, 42.0f, Backend::Nccl) == 0);
    CHECK(wrong(sum, 42.0f + 4 * 0x1p-5f, Backend::Nccl) == 1);
}

TEST_CASE("however many ranks there are, ddp-bench takes no average of 0 for right", "[nccl][bench]") {
    const Call call{.count = 1, .dtype = DType::BF16, .op = ReduceOp::Avg, .ranks = GENERATE(2, 128, 1024)};
    BFloat16 element{};
    CHECK(count_wrong(call, {&element, 1, DType::BF16, Device::Cpu}, Backend::Nccl) == 1);
}

// The NCCL backend on real devices: a world of one rank, with the native backend as the oracle, and, in the cases of
// [ranks], one of a rank for each device that there is, or of as many processes as were started (scripts/gpu-check).
// Without a device each case counts as skipped.

#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "worker_lib/bench/report.hpp"
#include "worker_lib/bench/run.hpp"

using namespace ddp;
using namespace ddp::test;

TEST_CASE("gpu: a program that leaves the choice gets NCCL where a device is usable", "[gpu]") {
    RETURN_IF_NO_GPU();
    Context context = lone_context(Backend::Auto);
    CHECK(context.world().backend() == Backend::Nccl);
    CHECK(context.world().size() == 1);
}

TEMPLATE_TEST_CASE("gpu: all_reduce gives what the native backend gives", "[gpu]", std::int8_t, std::uint8_t,
                   std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float, double) {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context nccl = lone_context(Backend::Nccl);
    Context native = lone_context(Backend::Native);
    for (const std::size_t count : {1u, 2u, 127u, 100'003u}) {
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
            if (op == ReduceOp::Avg && std::is_integral_v<TestType>) continue;
            CAPTURE(count, to_string(op));
            std::vector<TestType> values(count);
            for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<TestType>(i % 101);
            const Buffer buffer = gpu.to_device(values);
            nccl.world().all_reduce(buffer, op, {.stream = gpu.stream()}).wait();
            const auto result = gpu.to_host<TestType>(buffer);
            native.world().all_reduce(values, op).wait();
            REQUIRE(result == values);
        }
    }
}

TEST_CASE("gpu: an empty all_reduce is done", "[gpu]") {
    RETURN_IF_NO_GPU();
    Context context = lone_context(Backend::Nccl);
    context.world().all_reduce(Buffer{nullptr, 0, DType::F32, Device::Cuda}, ReduceOp::Sum).wait_host();
}

TEST_CASE("gpu: broadcast keeps root's values", "[gpu]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const std::vector<float> values(1000, 2.5f);
    const Buffer buffer = gpu.to_device(values);
    Work work = context.world().broadcast(buffer, 0, {.stream = gpu.stream()});
    work.wait();
    CHECK(gpu.to_host<float>(buffer) == values);
    work.wait_host();
    CHECK(work.done());
}

TEST_CASE("gpu: a hundred collectives in flight end in order", "[gpu]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const std::vector<float> values(1 << 18, 1.0f);
    const Buffer buffer = gpu.to_device(values);
    std::vector<Work> works;
    for (int i = 0; i < 100; ++i)
        works.push_back(context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = gpu.stream()}));
    works.back().wait_host();
    for (const Work& work : works) CHECK(work.done());
    CHECK(gpu.to_host<float>(buffer) == values);
}

TEST_CASE("gpu: a barrier blocks the host until it is done", "[gpu]") {
    RETURN_IF_NO_GPU();
    Context context = lone_context(Backend::Nccl);
    Work work = context.world().barrier();
    work.wait();
    CHECK(work.done());
}

TEST_CASE("gpu: arena memory is device memory, zeroed, and can be reduced", "[gpu]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const Buffer buffer{context.world().arena().allocate(4096), 1024, DType::F32, Device::Cuda};
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data) % 128 == 0);
    context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = gpu.stream()}).wait();
    CHECK(gpu.to_host<float>(buffer) == std::vector<float>(1024, 0.0f));
}

namespace {

const std::vector<float> kOnes(1000, 1.0f);

/// Everything that reduces, by `op`; and once, with sums, everything else.
bench::Options every_collective(DType dtype, ReduceOp op, int root) {
    bench::Options options;
    options.collectives.clear();
    for (const bench::Collective one : bench::kAllCollectives) {
        if (op == ReduceOp::Sum || bench::reduces(one)) options.collectives.push_back(one);
    }
    const bool slow = is_one_of_several();  // some milliseconds for each call
    options.min_bytes = slow ? 997 : 0;
    options.max_bytes = 1'000'000;
    options.factor = 997;
    options.iterations = slow ? 1 : 2;
    options.warm_up = slow ? 0 : 1;
    options.dtype = dtype;
    options.reduce_op = op;
    options.root = root;
    return options;
}

/// Returns the rows in which a rank has a wrong element.
std::string wrong_rows(Context& context, DType dtype) {
    const auto device = detail::open_device(context.local_rank());
    std::vector<bench::Row> rows;
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product}) {
        if (op == ReduceOp::Avg && !is_float(dtype)) continue;
        bench::run(context.world(), every_collective(dtype, op, context.world_size() - 1), device.get(), rows,
                   [](const bench::Row&, bool) {});
    }
    std::string wrong;
    for (const bench::Row& row : rows) {
        if (bench::wrong_values({row}) > 0) wrong += bench::table_row(row);
    }
    return wrong;
}

}  // namespace

TEST_CASE("gpu: messages go around, several between two ranks in the order of the calls", "[gpu][ranks][messages]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              const int size = context.world_size();
              const int previous = (context.rank() + size - 1) % size;
              const auto values = [](int rank, std::int32_t plus) {
                  return std::vector<std::int32_t>(1001, rank + plus);
              };
              const auto first_sent = values(context.rank(), 0), second_sent = values(context.rank(), 100);
              const auto nothing = values(-1, 0);
              const Buffer first = gpu.to_device(first_sent), second = gpu.to_device(second_sent);
              const Buffer in = gpu.to_device(nothing), later = gpu.to_device(nothing);
              TransferBatch batch = context.world().batch();
              const int next = (context.rank() + 1) % size;
              batch.send(first, next, 7).send(second, next, 7).recv(in, previous, 7).recv(later, previous, 7);
              batch.start({.stream = gpu.stream()}).wait();
              const bool right = gpu.to_host<std::int32_t>(in) == values(previous, 0) &&
                                 gpu.to_host<std::int32_t>(later) == values(previous, 100);
              return right ? "" : "something else has come; ";
          }) == "");
}

TEST_CASE("gpu: groups of every second rank work by themselves, and the world after them", "[gpu][ranks]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              const auto sum_over = [&](ProcessGroup& group) {
                  const Buffer ones = gpu.to_device(kOnes);
                  group.all_reduce(ones, ReduceOp::Sum, {.stream = gpu.stream()}).wait();
                  return static_cast<int>(gpu.to_host<float>(ones).back());
              };
              const int parity = context.rank() % 2;
              const int members = (context.world_size() + 1 - parity) / 2;
              const auto part = context.world().split(parity, context.rank(), "half");
              const bool right = sum_over(*part) == members && sum_over(context.world()) == context.world_size();
              return right ? "" : "a wrong sum; ";
          }) == "");
}

TEST_CASE("gpu: a rank that aborts leaves its peers an error, at their deadlines at the latest", "[gpu][ranks]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              if (context.world_size() == 1) return "";
              Gpu gpu(context.local_rank());
              const Buffer ones = gpu.to_device(kOnes);
              context.world().all_reduce(ones, ReduceOp::Sum, {.stream = gpu.stream()}).wait_host();
              if (context.rank() == 0) context.world().abort("a test");
              try {
                  context.world()
                      .all_reduce(ones, ReduceOp::Sum, {.timeout = std::chrono::seconds(5), .stream = gpu.stream()})
                      .wait_host();
              } catch (const Error&) {
                  return "";
              }
              return "no error; ";
          }) == "");
}

TEST_CASE("gpu: calls on a thread without a device leave it without one", "[gpu]") {
    RETURN_IF_NO_GPU();
    const auto current = Gpu::function<CUresult (*)(CUcontext*)>("cuCtxGetCurrent");
    REQUIRE(current != nullptr);
    auto outcome = std::async(std::launch::async, [&]() -> std::string {
        CUcontext context = nullptr;
        if (current(&context) != CUDA_SUCCESS || context != nullptr) return "a new thread has a device";
        Context ranks = lone_context(Backend::Nccl);
        const Buffer zeros{ranks.world().arena().allocate(64), 16, DType::F32, Device::Cuda};
        ranks.world().all_reduce(zeros, ReduceOp::Sum).wait();
        ranks.world().barrier().wait();
        if (current(&context) != CUDA_SUCCESS || context != nullptr) return "the thread has a device now";
        return "";
    });
    CHECK(outcome.get() == "");
}

TEST_CASE("gpu: a graph capture goes on beside operations in flight, and a call on a captured stream is refused",
          "[gpu][capture]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const std::vector<float> values(1 << 20, 1.0f);
    const Buffer buffer = gpu.to_device(values);
    gpu.finish();
    Gpu other;
    std::vector<Work> works;
    for (int i = 0; i < 500; ++i)
        works.push_back(context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = other.stream()}));
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    REQUIRE(gpu.api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK_THROWS_WITH(context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = gpu.stream()}),
                      Catch::Matchers::Contains("being captured into a CUDA graph"));
    works.back().wait_host();
    CUgraph graph = nullptr;
    CHECK(gpu.api().stream_end_capture(stream, &graph) == CUDA_SUCCESS);
    CHECK(gpu.api().graph_destroy(graph) == CUDA_SUCCESS);
    context.world().all_reduce(buffer, ReduceOp::Sum, {.stream = gpu.stream()}).wait_host();
}

TEST_CASE("gpu: a split group has a communicator of its own", "[gpu]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const OpOptions on_device{.stream = gpu.stream()};
    const auto part = context.world().split(0, 0, "part");
    part->barrier(on_device).wait_host();
    part->abort("only this one");
    CHECK_THROWS_AS(part->barrier(on_device).wait_host(), Error);
    context.world().barrier(on_device).wait_host();
}

TEST_CASE("gpu: after abort everything fails at once, and the group can be destroyed", "[gpu]") {
    RETURN_IF_NO_GPU();
    const auto start = ddprun::Clock::now();
    {
        Context context = lone_context(Backend::Nccl);
        context.world().abort("a test");
        CHECK_THROWS_WITH(context.world().barrier().wait(), Catch::Matchers::Contains("aborted: a test"));
    }
    CHECK(ddprun::Clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("gpu: host memory is taken as such and refused as device memory, and the group stays usable", "[gpu]") {
    RETURN_IF_NO_GPU();
    Context context = lone_context(Backend::Nccl);
    std::vector<float> values{1.0f, 2.0f, 3.0f};
    context.world().all_reduce(values, ReduceOp::Sum).wait();
    CHECK(values == std::vector{1.0f, 2.0f, 3.0f});
    CHECK(context.agree(true));
    const Buffer mislabelled{values.data(), values.size(), DType::F32, Device::Cuda};
    CHECK_THROWS_WITH(context.world().all_reduce(mislabelled, ReduceOp::Sum),
                      Catch::Matchers::Contains("CUDA knows no memory there"));
    context.world().barrier().wait();
}

// Last, because it takes longest.
TEST_CASE("gpu: every collective gives what it should", "[gpu][ranks]") {
    RETURN_IF_NO_GPU();
    const DType dtype = GENERATE(DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64, DType::F16,
                                 DType::BF16, DType::F32, DType::F64);
    CAPTURE(to_string(dtype));
    CHECK(complaints_of_ranks([&](Context& context) { return wrong_rows(context, dtype); }) == "");
}

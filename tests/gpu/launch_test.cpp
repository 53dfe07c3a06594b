// What a call costs the caller, and that communicators can be made and ended thousands of times (scripts/gpu-check,
// checks 14 and 21).

#include <fmt/format.h>

#include <filesystem>
#include <iterator>

#include "common/text/number.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"
#include "worker_lib/src/nccl/communicator.hpp"
#include "worker_lib/src/nccl/library.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

std::string mode_of_communicators() {
    const int version = detail::load_nccl().value().version;
    const bool free = detail::starts_nonblocking(version, detail::process_variables()("NCCL_COMM_BLOCKING"));
    return free ? "non-blocking" : "blocking";
}

/// Returns how many entries a folder of /proc/self has.
std::ptrdiff_t entries_of(const char* folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

/// What a process holds.
struct Holdings {
    std::ptrdiff_t threads = entries_of("/proc/self/task");
    std::ptrdiff_t descriptors = entries_of("/proc/self/fd");
    std::optional<std::size_t> free_memory = Gpu::free_memory();

    [[nodiscard]] double lost_mib_since(const Holdings& before) const {
        if (!free_memory || !before.free_memory) return 0;
        return (static_cast<double>(*before.free_memory) - static_cast<double>(*free_memory)) / (1 << 20);
    }
    [[nodiscard]] bool is_back(const Holdings& before) const {
        return threads <= before.threads && descriptors <= before.descriptors && lost_mib_since(before) <= 1;
    }
};

/// Makes a world of one rank, uses it, and ends it.
void make_and_end(Gpu& gpu, bool abort) {
    Context context = lone_context(Backend::Nccl);
    const Buffer zeros{context.world().arena().allocate(std::size_t{4} << 20), 1 << 20, DType::F32, Device::Cuda};
    context.world().all_reduce(zeros, ReduceOp::Sum, {.stream = gpu.stream()}).wait_host();
    if (abort) context.world().abort("a test");
}

}  // namespace

TEST_CASE("gpu: what a call of all_reduce costs its caller", "[gpu][check][launch]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    const std::string mode = mode_of_communicators();
    for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{25} << 20}) {
        const std::string name = fmt::format("{}_{}", mode, bytes < 1 << 20 ? "1_KiB" : "25_MiB");
        const Buffer in{gpu.allocate(bytes), bytes / 4, DType::F32, Device::Cuda};
        const Buffer out{gpu.allocate(bytes), bytes / 4, DType::F32, Device::Cuda};
        std::vector<double> microseconds;
        Work last;
        for (int i = -100; i < repetitions(10'000, 200); ++i) {  // the first ones warm up
            const auto begin = ddprun::Clock::now();
            last = context.world().all_reduce(in, out, ReduceOp::Sum, {.stream = gpu.stream()});
            if (i >= 0) microseconds.push_back(seconds_since(begin) * 1e6);
            if (i % 32 == 0) last.wait_host();  // no queue of the driver fills up
        }
        last.wait_host();
        figure_at_most(fmt::format("submit_{}_median", name), quantile(microseconds, 0.5), "us", 5);
        figure(fmt::format("submit_{}_p99", name), quantile(microseconds, 0.99), "us");
    }
}

// With NCCL_COMM_BLOCKING=0 it decides the table of versions in docs/design/013-nccl-backend.md.
TEST_CASE("gpu: groups are split off, used and ended many times", "[gpu][check][soak]") {
    RETURN_IF_NO_GPU();
    const char* const limit = std::getenv("GPU_CHECK_SOAK_SECONDS");
    const double seconds = limit == nullptr ? 600 : std::stod(limit);
    const int wanted = repetitions(2'000, 10);
    std::string line;
    CHECK(complaints_of_ranks([&](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              const auto begin = ddprun::Clock::now();
              int rounds = 0;
              for (bool more = true; more && rounds < wanted; ++rounds) {
                  const auto part = context.world().split(0, context.rank(), "part");
                  if (!sums_ones(gpu, *part)) return fmt::format("a wrong sum in round {}; ", rounds + 1);
                  if (rounds % 10 == 9) more = context.agree(seconds_since(begin) < seconds);
              }
              if (context.rank() > 0) return "";
              const int ranks = context.world_size();
              const std::string name = fmt::format("{}_rank{}", ranks, ranks == 1 ? "" : "s");
              figure(fmt::format("soak_{}", name), rounds, "rounds");
              figure(fmt::format("soak_{}_per_round", name), seconds_since(begin) / rounds * 1e3, "ms");
              if (rounds < wanted)
                  not_tried(fmt::format("{} of {} rounds with {}: {:.0f} s were over", wanted - rounds, wanted,
                                        ddprun::counted(ranks, "rank"), seconds));
              else
                  fact(fmt::format("for 013: | {} | {} | {} x (split, all_reduce, destroy) on {}, no hang |",
                                   detail::nccl_version_text(detail::load_nccl().value().version),
                                   mode_of_communicators(), rounds, ddprun::counted(ranks, "rank")));
              return "";
          }) == "");
}

TEST_CASE("gpu: groups that are made and ended, or aborted, leave nothing behind", "[gpu][check][leaks]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    for (int i = 0; i < 3; ++i) make_and_end(gpu, i == 2);  // what is made once, and stays
    std::this_thread::sleep_for(1s);                        // threads of the last abort
    const Holdings before;
    const auto check_after = [&](const char* name, int times, bool abort) {
        for (int i = 0; i < times; ++i) make_and_end(gpu, abort);
        const auto end = ddprun::Clock::now() + 10s;
        while (!Holdings().is_back(before) && ddprun::Clock::now() < end) std::this_thread::sleep_for(50ms);
        const Holdings after;
        CHECK(after.threads <= before.threads);
        CHECK(after.descriptors <= before.descriptors);
        if (before.free_memory) CHECK(after.lost_mib_since(before) <= 1);
        figure(fmt::format("{}_x_{}:_threads", times, name), static_cast<double>(after.threads - before.threads),
               "more");
        figure(fmt::format("{}_x_{}:_descriptors", times, name),
               static_cast<double>(after.descriptors - before.descriptors), "more");
        if (before.free_memory)
            figure(fmt::format("{}_x_{}:_memory_lost", times, name), after.lost_mib_since(before), "MiB");
    };
    check_after("destroy", repetitions(50, 5), false);
    check_after("abort", repetitions(20, 5), true);
    if (!before.free_memory) not_tried("memory: the driver has no cuMemGetInfo");
}

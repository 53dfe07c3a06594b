// The choice of the backend: one decision for all ranks, from what each of them finds on its machine.

#include <future>
#include <optional>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/context/backend_choice.hpp"

using namespace ddp;
using namespace ddp::testing;
using detail::BackendReport;
using detail::decide_backend;

namespace {

BackendReport report(Backend asked, const std::string& host, const std::string& obstacle = "",
                     bool gpu_expected = false) {
    return {.asked = asked, .host = host, .obstacle = obstacle, .gpu_expected = gpu_expected};
}

/// Returns the error with which the reports are refused.
std::optional<Error> refusal(const std::vector<BackendReport>& reports) {
    try {
        (void)decide_backend(reports);
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

}  // namespace

TEST_CASE("NCCL is chosen where every rank can use it", "[context][unit]") {
    for (const Backend asked : {Backend::Auto, Backend::Nccl}) {
        const auto choice = decide_backend({report(asked, "a"), report(asked, "b")});
        CHECK(choice.backend == Backend::Nccl);
        CHECK(choice.line == "");
    }
}

TEST_CASE("one rank without a device keeps all on the CPU, and one line says which", "[context][unit]") {
    const auto choice =
        decide_backend({report(Backend::Auto, "a"), report(Backend::Auto, "a"),
                        report(Backend::Auto, "b", "no CUDA device"), report(Backend::Auto, "b", "no CUDA device")});
    CHECK(choice.backend == Backend::Native);
    CHECK_THAT(choice.line, Catch::Contains("ranks 2 and 3 on host b: no CUDA device") &&
                                Catch::Contains("native CPU backend") && Catch::Contains("all ranks"));
}

TEST_CASE("a job without any GPU prints nothing about them, unless a machine seems to have one", "[context][unit]") {
    const BackendReport plain = report(Backend::Auto, "a", "libnccl.so.2 not found");
    CHECK(decide_backend({plain, plain}).backend == Backend::Native);
    CHECK(decide_backend({plain, plain}).line == "");
    BackendReport hopeful = plain;
    hopeful.gpu_expected = true;
    CHECK_THAT(decide_backend({plain, hopeful}).line,
               Catch::Contains("ranks 0 and 1 on host a: libnccl.so.2 not found"));
}

TEST_CASE("ranks that would share a GPU are named before NCCL starts", "[context][unit]") {
    std::vector<BackendReport> reports(3, report(Backend::Nccl, "a"));
    reports.push_back(report(Backend::Nccl, "b"));
    reports[0].gpu = "0000:01:00/a";
    reports[0].uuid = "GPU-0";
    reports[1].gpu = reports[2].gpu = "0000:02:00/a";
    reports[1].uuid = reports[2].uuid = "GPU-1";
    CHECK_THAT(refusal(reports).value().what(),
               Catch::Contains("not usable by ranks 1 and 2 on host a: several ranks share GPU-1, and NCCL"));
    CHECK(refusal(reports)->culprits() == std::vector<int>{1, 2});
    for (BackendReport& one : reports) one.asked = Backend::Auto;
    CHECK_THAT(decide_backend(reports).line, Catch::Contains("several ranks share GPU-1"));
    // The slices of MIG have UUIDs of their own, but NCCL compares bus ids.
    reports[2].uuid = "GPU-2";
    CHECK_THAT(decide_backend(reports).line,
               Catch::Contains("ranks 1 and 2 on host a: several ranks have MIG slices of "
                               "the GPU at 0000:02:00, and NCCL takes these for one GPU") &&
                   Catch::Contains("NCCL_MULTI_RANK_GPU_ENABLE=1"));
    reports[2].uuid = "GPU-1";
    // Also if all share one, on a machine where nothing else shows that it has a GPU.
    CHECK_THAT(decide_backend({reports[1], reports[2]}).line, Catch::Contains("several ranks share GPU-1"));
    reports[2].gpu = "";  // unknown
    CHECK(decide_backend(reports).backend == Backend::Nccl);
}

TEST_CASE("NCCL that was asked for is never replaced: all ranks fail, naming those without it", "[context][unit]") {
    const auto error = refusal({report(Backend::Nccl, "a"), report(Backend::Nccl, "b", "no CUDA device"),
                                report(Backend::Nccl, "c", "libnccl.so.2 not found")});
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Unavailable);
    CHECK(error->culprits() == std::vector<int>{1, 2});
    CHECK_THAT(error->what(), Catch::Contains("rank 1 on host b: no CUDA device") &&
                                  Catch::Contains("rank 2 on host c: libnccl.so.2 not found") &&
                                  Catch::Contains("Backend::Native"));
}

TEST_CASE("ranks that ask for different backends get an error that names them", "[context][unit]") {
    const auto error = refusal({report(Backend::Auto, "a"), report(Backend::Native, "a"), report(Backend::Auto, "b")});
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Mismatch);
    CHECK_THAT(error->what(), Catch::Contains("rank 0 asks for auto") && Catch::Contains("rank 1 for native"));
}

TEST_CASE("a report survives the store", "[context][unit]") {
    BackendReport before = report(Backend::Nccl, "host-a", "no CUDA device: driver too old", true);
    before.gpu = GENERATE("", "0000:01:00/node-1");
    before.uuid = GENERATE("", "GPU-0");
    const BackendReport after = detail::decode_report(encode(before));
    CHECK(after.asked == before.asked);
    CHECK(after.host == before.host);
    CHECK(after.obstacle == before.obstacle);
    CHECK(after.gpu_expected);
    CHECK(after.gpu == before.gpu);
    CHECK(after.uuid == before.uuid);
    CHECK_THROWS_AS(detail::decode_report("nonsense"), Error);
}

TEST_CASE("ranks of one job that ask for different backends fail at once", "[context][unit]") {
    const LocalWorld world{.ranks_per_node = {2}};
    const auto store = detail::make_local_store();
    std::vector<std::future<std::string>> ranks;
    for (const int rank : {0, 1}) {
        ranks.push_back(std::async(std::launch::async, [&world, store, rank] {
            InitOptions options = world.options();
            options.backend = rank == 0 ? Backend::Auto : Backend::Native;
            options.init_timeout = std::chrono::seconds(2);  // the native rank waits for rank 0's record in vain
            try {
                const Context context(world.environment(rank), store, options);
            } catch (const Error& error) {
                return std::string(error.what());
            }
            return std::string("accepted");
        }));
    }
    CHECK_THAT(ranks[0].get(), Catch::Contains("rank 0 asks for auto") && Catch::Contains("rank 1 for native"));
    CHECK_THAT(ranks[1].get(), Catch::Contains("rank 0"));
}

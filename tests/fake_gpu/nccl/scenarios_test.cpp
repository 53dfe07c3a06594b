// The fake of NCCL in processes of their own: what ThreadSanitizer finds between a program's streams and NCCL's, and
// the uses of NCCL that hang or corrupt memory on a real device now and then, which the fake reports.

#include <csignal>
#include <string>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Matchers::Contains;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSeesRaces = true;
#else
constexpr bool kSeesRaces = false;
#endif

e2e::Outcome use(const e2e::Sandbox& sandbox, const std::string& how, const std::string& faults = "") {
    return e2e::run(sandbox, {.argv = {FAKE_NCCL_SCENARIOS, how}, .env = {{"DDP_FAKE_NCCL_FAULTS", faults}}});
}

}  // namespace

TEST_CASE("the fake of NCCL reports nothing for a correct use", "[fake_gpu]") {
    const std::string how = GENERATE("nothing", "order", "send before receive", "free during launch");
    const e2e::Sandbox sandbox("nccl-use");
    const auto used = use(sandbox, how);
    CAPTURE(how, used.err);
    CHECK(used.status.exit_code() == 0);
    CHECK(used.err.empty());
}

TEST_CASE("ThreadSanitizer reports a buffer of NCCL that nothing orders", "[fake_gpu]") {
    const e2e::Sandbox sandbox("nccl-race");
    const auto used = use(sandbox, "no order");
    CAPTURE(used.err);
    CHECK(used.status.exit_code() == (kSeesRaces ? 66 : 0));
    if (kSeesRaces) CHECK_THAT(used.err, Contains("WARNING: ThreadSanitizer: data race"));
}

TEST_CASE("the fake of NCCL reports misuse", "[fake_gpu]") {
    struct Misuse {
        std::string how;
        std::string report;
        std::string faults = {};
    };
    const auto [how, report, faults] = GENERATE(values<Misuse>({
        {"two threads", " while another thread is inside this communicator", "all: ncclAllReduce 1 block"},
        {"open group", "a thread ends with an open group of 1 calls"},
        {"left open group", "a thread ends with an open group of 1 calls"},
        {"two communicators in a group", "in a group with calls on rank 0 of communicator "},
        {"call in progress", "ncclAllReduce while a call on it is in progress"},
        {"event during launch", "work was put on the stream while the launch of ncclAllReduce there was in progress"},
        {"different orders", "in different orders on their devices"},
        {"host buffer", "is not memory that CUDA knows"},
        {"buffer of another device", "is memory of device 1; the communicator is on device 0"},
        {"buffer that is too small", "is not memory that CUDA knows"},
        {"stream of another device", "a stream of device 1, not 0"},
        {"call after abort", "ncclAllReduce after its end"},
        {"second abort", "ncclCommAbort after its end"},
        {"call after finalize", "ncclAllReduce after ncclCommFinalize"},
        {"destroy before finalize", "ncclCommDestroy before ncclCommFinalize has ended"},
    }));
    const e2e::Sandbox sandbox("nccl-misuse");
    const auto used = use(sandbox, how, faults);
    CAPTURE(how, used.err);
    CHECK(used.status.exit_code() == 128 + SIGABRT);
    CHECK_THAT(used.err, Contains("NCCL: ") && Contains(report));
    CHECK(sandbox.leftovers() == "");
}

// The fake driver in processes of their own: faults, misuses that abort, and what ThreadSanitizer finds between
// streams.

#include "tests/catch.hpp"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSeesRaces = true;
#else
constexpr bool kSeesRaces = false;
#endif

struct Outcome {
    int status;  // of waitpid
    std::string output;
    [[nodiscard]] bool contains(const std::string& text) const { return output.find(text) != std::string::npos; }
};

/// Runs a scenario with these arguments of env(1). If it hangs it does not outlive the test for long.
Outcome run(const std::string& scenario, const std::string& variables = "") {
    const std::string line = "exec env -u RANK -u CUDA_VISIBLE_DEVICES " + variables +
                             " timeout -s KILL 100 '" FAKE_GPU_SCENARIOS "' \"" + scenario + "\" 2>&1";
    std::FILE* const pipe = ::popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Outcome outcome{};
    std::array<char, 4096> text{};
    while (std::fgets(text.data(), text.size(), pipe) != nullptr) outcome.output += text.data();
    outcome.status = ::pclose(pipe);
    return outcome;
}

/// Returns whether the program ended with a report of ThreadSanitizer.
bool raced(const Outcome& outcome) {
    return outcome.contains("WARNING: ThreadSanitizer: data race") && WIFEXITED(outcome.status) &&
           WEXITSTATUS(outcome.status) == 66;
}
bool succeeded(const Outcome& outcome) { return WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0; }

}  // namespace

// In time all of these are right, so only ThreadSanitizer can know. Without it the cases check that the fake runs them;
// fake_cuda_test.cpp checks the same order by holding streams up.
TEST_CASE("ThreadSanitizer reports streams that nothing orders", "[fake_gpu]") {
    const std::string scenario =
        GENERATE("no order", "no order, bookkeeping", "no order, an earlier event",
                 "no order, non-blocking streams and the default stream", "no order, the host writes",
                 "no order, the host writes first", "no order, other events", "no order, the host reads after a free",
                 "no order, in a graph");
    const Outcome outcome = run(scenario);
    CAPTURE(scenario, outcome.output);
    CHECK((outcome.contains("read 5\n") || outcome.contains("written\n")));
    CHECK((kSeesRaces ? raced(outcome) : succeeded(outcome)));
}

TEST_CASE("ThreadSanitizer reports no streams that are ordered", "[fake_gpu]") {
    const std::string scenario =
        GENERATE("an event", "an event and bookkeeping", "the host polls", "a third stream",
                 "the default stream between blocking streams", "the host waits before it writes", "a wait in a graph");
    const Outcome outcome = run(scenario);
    CAPTURE(scenario, outcome.output);
    CHECK((outcome.contains("read 5\n") || outcome.contains("written\n")));
    CHECK(succeeded(outcome));
}

TEST_CASE("a fault meets the call of its number on its rank", "[fake_gpu]") {
    struct Case {
        const char* faults;
        std::array<int, 3> results;
    };
    const auto [faults, results] = GENERATE(values<Case>({
        {"", {0, 0, 0}},
        {"rank 1: cuEventRecord 2 error 700", {0, 700, 0}},
        {"all: cuEventRecord 2+ error 700", {0, 700, 700}},
        {"rank 1:cuEventRecord 3 error 2;rank 1:cuEventRecord 1 error 1", {1, 0, 2}},
        {"rank 0, 2: cuEventRecord 1+ error 700; rank 11: cuEventRecord 1 exit; all: cuMemAlloc 1 exit", {0, 0, 0}},
        {"rank 0, 1: cuEventRecord 3 wait; rank 1: cuEventRecord 3 error 700", {0, 0, 0}},  // the first that fits
    }));
    const Outcome outcome = run("records", "RANK=1 DDP_FAKE_CUDA_FAULTS='" + std::string(faults) + "'");
    CAPTURE(faults, outcome.output);
    for (int i = 0; i < 3; ++i) {
        const std::string result = std::to_string(i + 1) + ": " + std::to_string(results.at(i)) + " after ";
        CHECK(outcome.contains("record " + result));
        CHECK(outcome.contains("ended " + result) == (results.at(i) == 0));
    }
    CHECK(succeeded(outcome));
}

TEST_CASE("a process without a rank has the faults of all", "[fake_gpu]") {
    const Outcome outcome =
        run("records", "DDP_FAKE_CUDA_FAULTS='rank 0: cuEventRecord 1 error 1; all: cuEventRecord 2 error 2'");
    CAPTURE(outcome.output);
    CHECK(outcome.contains("record 1: 0 "));
    CHECK(outcome.contains("record 2: 2 "));
}

TEST_CASE("calls and work that take longer", "[fake_gpu]") {
    const Outcome outcome = run(
        "records", "RANK=1 DDP_FAKE_CUDA_FAULTS='rank 1: cuEventRecord 1 slow 1100ms; all: cuEventRecord 3 late 2s'");
    CAPTURE(outcome.output);
    CHECK_FALSE(outcome.contains("record 1: 0 after 0."));
    CHECK_FALSE(outcome.contains("ended 3: 0 after 0."));
    CHECK_FALSE(outcome.contains("ended 3: 0 after 1."));
    CHECK(outcome.contains("ended 3: 0 after "));
}

TEST_CASE("work that never ends", "[fake_gpu]") {
    const Outcome outcome =
        run("records that never end", "RANK=1 DDP_FAKE_CUDA_FAULTS='rank 1: cuEventRecord 2 never'");
    CAPTURE(outcome.output);
    CHECK(outcome.contains("ended 1: 0 "));
    CHECK(outcome.contains("record 2: 0 "));
    CHECK(outcome.contains("ended 2: 600 "));
    CHECK(outcome.contains("ended 3: 600 "));  // it is behind the second
    CHECK(succeeded(outcome));
}

TEST_CASE("a call that blocks does not return", "[fake_gpu]") {
    const Outcome outcome = run("a record that blocks", "DDP_FAKE_CUDA_FAULTS='all: cuEventRecord 2 block'");
    CHECK(outcome.output == "blocked\n");
    CHECK(succeeded(outcome));
}

TEST_CASE("a fault ends the process without a word", "[fake_gpu]") {
    const Outcome outcome = run("records", "RANK=3 DDP_FAKE_CUDA_FAULTS='rank 3: cuEventRecord 2 exit'");
    CAPTURE(outcome.output);
    CHECK(outcome.contains("record 1: 0 "));
    CHECK_FALSE(outcome.contains("record 2"));
    CHECK_FALSE(succeeded(outcome));
}

TEST_CASE("the environment says which devices there are", "[fake_gpu]") {
    const std::string uuid = "GPU-00000000-0000-0000-0000-00000000000";
    CHECK(run("devices", "DDP_FAKE_CUDA_DEVICES=2").output == uuid + "0\n" + uuid + "1\n");
    // A device has its UUID under every index, so processes that see different devices do not seem to share one.
    CHECK(run("devices", "CUDA_VISIBLE_DEVICES=7,2,9,1").output == uuid + "7\n" + uuid + "2\n");
    CHECK(run("devices", "DDP_FAKE_CUDA_DEVICES=0").output == "there is no CUDA device\n");
    CHECK(run("devices", "CUDA_VISIBLE_DEVICES=").output == "there is no CUDA device (CUDA_VISIBLE_DEVICES='')\n");
    CHECK(
        run("devices", "DDP_FAKE_CUDA_FAULTS='all: cuInit 1 error 3'").output ==
        "the CUDA driver does not start: initialization error (CUDA_ERROR_NOT_INITIALIZED) (see nvidia-smi, and `dmesg "
        "| grep NVRM`)\n");
}

TEST_CASE("a local rank has the device of its index, or the only one that its process sees", "[fake_gpu]") {
    CHECK(run("the device of local rank 2").contains("device 2\n"));
    CHECK(run("the device of local rank 2", "CUDA_VISIBLE_DEVICES=5").contains("device 0\n"));
    const Outcome outcome = run("the device of local rank 2", "CUDA_VISIBLE_DEVICES=5,4");
    CAPTURE(outcome.output);
    CHECK(outcome.contains("cuDeviceGet of CUDA device 2: invalid device ordinal"));
}

TEST_CASE("faults that are written wrong end the process", "[fake_gpu]") {
    struct Case {
        const char* faults;
        const char* problem;
    };
    const auto [faults, problem] = GENERATE(values<Case>({
        {"cuMemFree 1 block", "there is no ':' behind the ranks"},
        {"rank x: cuMemFree 1 block", "'x' is not a number"},
        {"rank ,: cuMemFree 1 block", "no rank is named"},
        {"ranks 1: cuMemFree 1 block", "the ranks are not 'all'"},
        {"all: cuMemFre 1 block", "'cuMemFre' is not a call of this library"},
        {"all: cuMemFree 0 block", "calls are counted from 1"},
        {"all: cuMemFree 1", "a part is missing"},
        {"all: cuMemFree 1 blocks", "'blocks' is not a fault"},
        {"all: cuMemFree 1 block 5s", "its argument is wrong"},
        {"all: cuMemFree 1 slow", "its argument is wrong"},
        {"all: cuMemFree 1 slow 5", "'5' is not a time"},
        {"all: cuMemFree 1 error ten", "'ten' is not a number"},
    }));
    const Outcome outcome = run("records", "DDP_FAKE_CUDA_FAULTS='" + std::string(faults) + "'");
    CAPTURE(faults, outcome.output);
    CHECK(outcome.contains(std::string("DDP_FAKE_CUDA_FAULTS: in the fault '") + faults + "': "));
    CHECK(outcome.contains(problem));
    CHECK_FALSE(succeeded(outcome));
}

TEST_CASE("a misuse is reported with its place and aborts", "[fake_gpu]") {
    struct Case {
        const char* scenario;
        const char* report;
        const char* call;
    };
    const auto [scenario, report, call] = GENERATE(values<Case>({
        {"wait for an event before its record", "an event that was never recorded", "(cuStreamWaitEvent, "},
        {"free memory in flight", "4096 bytes of device memory at 0x", "(cuMemFree, "},
        {"free the argument of a kernel in flight", "in flight, the last by cuLaunchKernel", "(cuMemFree, "},
        {"free memory twice", "was freed before", "(cuMemFree, "},
        {"use a destroyed stream", "a stream is used after it was destroyed", "(cuEventRecord, "},
        {"destroy a stream twice", "a stream is used after it was destroyed", "(cuStreamDestroy, "},
        {"use a destroyed event", "an event is used after it was destroyed", "(cuEventQuery, "},
        {"call without a context", "a call on a thread without a context", "(cuMemAlloc, "},
        {"call on a stream's thread", "a function that a stream runs makes a CUDA call", "(cuInit, "},
    }));
    const Outcome outcome = run(scenario, "RANK=4");
    CAPTURE(scenario, outcome.output);
    CHECK(outcome.output.starts_with("fake CUDA: "));
    CHECK(outcome.contains(report));
    CHECK(outcome.contains(std::string(call) + "called from fake_gpu_scenarios+0x"));
    CHECK(outcome.contains(", rank 4)\n"));
    CHECK_FALSE(succeeded(outcome));
}

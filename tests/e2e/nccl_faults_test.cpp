// Failures of jobs on NCCL: what the ranks report.

#include <fmt/format.h>

#include <csignal>
#include <optional>
#include <regex>
#include <string>

#include "tests/catch.hpp"
#include "tests/e2e/nccl.hpp"

using Catch::Matchers::Contains;

namespace {

constexpr int kTimeout = 3;   // ErrorCode::Timeout
constexpr int kPeerLost = 4;  // ErrorCode::PeerLost
constexpr int kSystem = 8;    // ErrorCode::System

/// The report of one rank of `nccl_job loop`.
struct Report {
    int code = -1;
    std::string culprits;
    double seconds = 0;
    std::string text;
};

std::optional<Report> report_of(const std::string& out, int rank) {
    const std::regex line(fmt::format("rank {}: (\\d+) \\[(.*)\\] call \\d+, ([0-9.]+) s \\| (.*)", rank));
    std::smatch found;
    if (!std::regex_search(out, found, line)) return std::nullopt;
    return Report{std::stoi(found[1]), found[2], std::stod(found[3]), found[4]};
}

}  // namespace

TEST_CASE("when a rank dies in the middle of an operation on NCCL all others name it", "[e2e][sanitized]") {
    const std::string how = GENERATE(as<std::string>(), "", "hasty");  // they end at once when they have failed
    const e2e::Sandbox sandbox("nccl-death");
    std::vector<std::string> program{NCCL_JOB, "loop", "60000"};
    if (!how.empty()) program.push_back(how);
    const auto job = e2e::run(sandbox, e2e::nccl_job(8, program, "rank 3: kernel 5 exit"));
    CAPTURE(how, job.out, job.err);
    CHECK(job.status.exit_code() == 128 + SIGKILL);
    CHECK_THAT(job.err, !Contains("Sanitizer"));
    for (int rank = 0; rank < 8; ++rank) {
        CAPTURE(rank);
        const auto report = report_of(job.out, rank);
        CHECK(report.has_value() == (rank != 3));
        if (!report) continue;
        CHECK(report->code == kPeerLost);  // long before the timeout
        CHECK(report->culprits == "3");
        CHECK_THAT(report->text, Contains("rank 3 ("));
        CHECK(report->seconds < 30);  // docs/design/013: 2 s
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a call that one rank does not make is a timeout of the others on NCCL", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-absent");
    const auto job = e2e::run(sandbox, e2e::nccl_job(8, {NCCL_JOB, "loop", "2000", "absent", "2", "4"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    for (int rank = 0; rank < 8; ++rank) {
        CAPTURE(rank);
        const auto report = report_of(job.out, rank);
        CHECK(report.has_value() == (rank != 2));
        if (report) CHECK(report->code == kTimeout);
    }
}

TEST_CASE("faults of NCCL and of its device end in an error of the operation", "[e2e][sanitized]") {
    struct Fault {
        std::string faults;
        int code;  ///< on rank 1, which has the fault
        std::string text;
        std::string version = "22809";
    };
    const auto [faults, code, text, version] = GENERATE(values<Fault>({
        {"rank 1: kernel 4 never", kTimeout, "not done on the device at its deadline"},
        {"rank 1: launch 4 never", kTimeout, "NCCL was still connecting to its peers at its deadline"},
        {"rank 1: kernel 4 error 6", kPeerLost, "NCCL failed: remote process exited or there was a network error"},
        {"rank 1: ncclAllReduce 4 error 5", kSystem, "NCCL could not launch it: invalid usage"},
        // An abort that waits for the device ends: the other ranks' aborts let their kernels go, and this one's its
        // own.
        {"rank 1: kernel 4 never; all: ncclCommAbort 1 wait", kTimeout, "not done on the device at its deadline"},
        {"rank 1: launch 4 late 500ms; rank 0: kernel 3 late 500ms; rank 2: kernel 6 never", kTimeout,
         "#5 all_reduce"},  // what is only late ends
    }));
    const e2e::Sandbox sandbox("nccl-faults");
    auto command = e2e::nccl_job(4, {NCCL_JOB, "loop", "2000"}, faults);
    command.env["DDP_FAKE_NCCL_VERSION"] = version;
    const auto job = e2e::run(sandbox, command);
    CAPTURE(faults, version, job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    const auto report = report_of(job.out, 1);
    REQUIRE(report);
    CHECK(report->code == code);
    CHECK_THAT(report->text, Contains(text));
    for (const int rank : {0, 2, 3}) {
        const auto others = report_of(job.out, rank);
        REQUIRE(others);
        CHECK(others->code == kTimeout);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an init that NCCL refuses on one rank names its device", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-init");
    const auto job =
        e2e::run(sandbox, e2e::nccl_job(4, {NCCL_JOB, "auto"}, "rank 1: ncclCommInitRankConfig 1 error 1"));
    CAPTURE(job.err);
    CHECK(job.status.exit_code() == 1);
    CHECK_THAT(job.err, Contains("of 4 in group 'world': NCCL could not start on CUDA device 1: unhandled cuda error"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank whose device does not answer ends itself with a code of its own", "[e2e][sanitized]") {
    struct Hang {
        std::string faults;
        std::string call;
        std::string version = "22809";
    };
    const auto [faults, call, version] = GENERATE(values<Hang>({
        {"rank 1: kernel 4 never; rank 1: ncclCommAbort 1 block", "ncclCommAbort did not return within "},
        {"rank 1: launch 4 never", "a call of NCCL", "21803"},  // a blocking communicator
    }));
    const e2e::Sandbox sandbox("nccl-stuck");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "loop", "1000"}, faults);
    command.env["DDP_FAKE_NCCL_VERSION"] = version;
    command.argv.insert(command.argv.begin() + 1, {"--shutdown-timeout", "3"});  // the program ignores SIGTERM
    const auto job = e2e::run(sandbox, command);
    CAPTURE(faults, job.out, job.err);
    CHECK(job.status.exit_code() == 71);
    CHECK_THAT(job.err, !Contains("Sanitizer"));
    CHECK_THAT(job.err, Contains("[ddp] rank 1 (host ") && Contains(call));
    CHECK_THAT(job.err, Contains("CUDA device 1 does not answer, and this process ends with code 71"));
    CHECK_THAT(job.err, Contains("Look at nvidia-smi and dmesg on that host"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank whose NCCL thread hangs is reported with the call, also when its process has ended", "[e2e]") {
    const auto [version, call] = GENERATE(table<std::string, std::string>({
        {"21803", "ncclAllReduce"},                // a blocking communicator: the thread is in the call
        {"22809", "ncclAllReduce (in progress)"},  // NCCL has returned, and goes on with the call
    }));
    const e2e::Sandbox sandbox("nccl-thread");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "loop", "8000"}, "rank 1: launch 4 never");
    command.env["DDP_FAKE_NCCL_VERSION"] = version;
    command.argv.insert(command.argv.begin() + 1, {"--stall-warning", "2", "--shutdown-timeout", "3"});
    const auto job = e2e::run(sandbox, command);
    CAPTURE(version, job.out, job.err);
    CHECK_THAT(job.err, Contains("the NCCL thread of rank 1 has been in " + call + " of group 'world' for "));
    const bool ends = version == "21803";
    CHECK(job.status.exit_code() == (ends ? 71 : 0));
    if (ends) CHECK_THAT(job.err, Contains("; its NCCL thread was in " + call + " of group 'world' for "));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a group on NCCL that ends when its results are there is not aborted", "[e2e][sanitized]") {
    const e2e::Sandbox sandbox("nccl-brief");
    const auto job = e2e::run(sandbox, e2e::nccl_job(4, {NCCL_JOB, "brief"}, "all: ncclCommAbort 1 exit"));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
}

TEST_CASE("the memory of a group on NCCL that has been aborted may wait for kernels of the program", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-free");
    const auto job = e2e::run(sandbox, e2e::nccl_job(2, {NCCL_JOB, "free"}));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK_THAT(job.out, Contains("rank 0: sum 2") && Contains("rank 1: sum 2"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a group on NCCL is aborted while another one of its device waits for a slow rank", "[e2e]") {
    struct Wait {
        std::string faults;
        std::string version = "22809";
    };
    const auto [faults, version] = GENERATE(values<Wait>({
        {"rank 0: ncclCommAbort 1 wait"},      // it waits for all kernels of the device
        {"rank 0: launch 4 late 4s", "21803"}  // the thread that launches stays in NCCL
    }));
    const e2e::Sandbox sandbox("nccl-abort");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "abort"}, faults);
    command.env["DDP_FAKE_NCCL_VERSION"] = version;
    const auto job = e2e::run(sandbox, command);
    CAPTURE(faults, job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    CHECK_THAT(job.out, Contains("rank 0: sum 2") && Contains("rank 1: sum 2") && Contains("aborted: enough"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank whose device does not answer ends itself also where its stderr takes no more", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-mute");
    auto command = e2e::nccl_job(2, {NCCL_JOB, "loop", "1000", "mute", "1"},
                                 "rank 1: kernel 4 never; rank 1: ncclCommAbort 1 block");
    command.argv.insert(command.argv.begin() + 1, {"--shutdown-timeout", "3"});
    const auto job = e2e::run(sandbox, command, e2e::Seconds(30));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 71);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a start on NCCL that fails does not wait for the device without end", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-start");
    auto command = e2e::nccl_job(1, {NCCL_JOB, "auto"});
    command.env["DDP_FAKE_CUDA_FAULTS"] = "all: cuMemsetD8Async 1 error 2; all: cuMemFree 1 block";
    const auto job = e2e::run(sandbox, command, e2e::Seconds(60));
    CAPTURE(job.err);
    CHECK(job.status.exit_code() == 1);
    CHECK_THAT(job.err, Contains("cuMemsetD8Async: out of memory"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job may give NCCL more time for its aborts", "[e2e]") {
    const e2e::Sandbox sandbox("nccl-time");
    auto command =
        e2e::nccl_job(2, {NCCL_JOB, "loop", "1000"}, "rank 1: kernel 4 never; rank 1: ncclCommAbort 1 slow 3s");
    command.argv.insert(command.argv.begin() + 1, {"--shutdown-timeout", "3"});
    const std::string limit = GENERATE(as<std::string>(), "", "10", "long");
    if (!limit.empty()) command.env["DDPRUN_NCCL_ABORT_TIMEOUT"] = limit;
    const auto job = e2e::run(sandbox, command);
    CAPTURE(limit, job.out, job.err);
    CHECK(job.status.exit_code() == (limit.empty() ? 71 : limit == "10" ? 0 : 1));
    if (limit == "10") CHECK(report_of(job.out, 1).has_value());
    if (limit == "long") {
        CHECK_THAT(job.err,
                   Contains("nccl_job: DDPRUN_NCCL_ABORT_TIMEOUT is 'long', expected a whole number of seconds "
                            "from 1 to 3600. Unset it to use the default, 1\n"));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that throws an exception is the cause of the failure of a job on NCCL", "[e2e]") {
    const auto how = GENERATE(as<std::string>(), "idle", "busy", "slow");
    // What the others' NCCL reports then: nothing, a lost peer, or a failure of the system.
    const auto faults = GENERATE(as<std::string>(), "", "rank 0, 1, 3: kernel 6 error 6", "rank 0: kernel 6 error 2");
    const e2e::Sandbox sandbox("nccl-raise");
    const auto job = e2e::run(sandbox, e2e::nccl_job(4, {NCCL_JOB, "raise", "2", how}, faults));
    CAPTURE(how, faults, job.out, job.err);
    CHECK(job.status.exit_code() == 1);
    // One whose device keeps it longer than a second may be named by its abort alone, because others end before it.
    const auto victim = Contains("rank        : 2 (local rank 2)");
    if (how == "slow")
        CHECK_THAT(job.err, victim || Contains("ABORTED group 'world': rank 2 ("));
    else
        CHECK_THAT(job.err, victim);
    CHECK(sandbox.leftovers() == "");
}

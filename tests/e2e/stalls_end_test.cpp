// Jobs that stalled and end, by a deadline or by a rank's end: the text of the verdict, or of the last line.

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/stalls.hpp"

using Catch::Contains;
using e2e::line;
using e2e::report_of_stall;
using e2e::StallReport;

namespace {

/// A control group below our own with at most 1 GiB of memory.
class LimitedMemory {
public:
    LimitedMemory() {
        const std::string own = e2e::read_file("/proc/self/cgroup");
        const std::filesystem::path mount = "/sys/fs/cgroup";
        const auto path_behind = [&](const std::string& head) -> std::filesystem::path {
            const auto at = ("\n" + own).find(head);
            return at == std::string::npos
                       ? ""
                       : own.substr(at + head.size() - 1, own.find('\n', at) - at - head.size() + 1);
        };
        for (const auto& [parent, limit] :
             {std::pair(mount / path_behind("\n0::/"), "memory.max"),
              std::pair(mount / "memory" / path_behind(":memory:/"), "memory.limit_in_bytes")}) {
            folder_ = parent / fmt::format("ddprun-test-{}", ::getpid());
            if (::mkdir(folder_.c_str(), 0755) != 0) continue;
            if (std::filesystem::exists(folder_ / "memory.swap.max")) std::ofstream(folder_ / "memory.swap.max") << 0;
            if (std::filesystem::exists(folder_ / limit) && (std::ofstream(folder_ / limit) << (1 << 30)).flush())
                return;
            ::rmdir(folder_.c_str());
        }
        folder_.clear();
    }
    ~LimitedMemory() {
        if (is_there()) CHECK(e2e::eventually(e2e::Seconds(10), [&] { return ::rmdir(folder_.c_str()) == 0; }));
    }
    LimitedMemory(const LimitedMemory&) = delete;
    LimitedMemory& operator=(const LimitedMemory&) = delete;

    [[nodiscard]] bool is_there() const { return !folder_.empty(); }
    /// Returns the command that runs `argv`, with its children, in the group.
    [[nodiscard]] std::vector<std::string> in(std::vector<std::string> argv) const {
        const std::string script = fmt::format("echo $$ > '{}/cgroup.procs' && exec \"$@\"", folder_.string());
        argv.insert(argv.begin(), {"sh", "-c", script, "sh"});
        return argv;
    }

private:
    std::filesystem::path folder_;
};

}  // namespace

TEST_CASE("an operation that fails at its deadline ends the job with the rank that has not arrived", "[e2e]") {
    const e2e::Sandbox sandbox("stall-deadline");
    const auto job =
        e2e::run(sandbox,
                 {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--max-restarts", "0"},
                               {STALLING, "deadline"})},
                 e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    CHECK_THAT(job.err.substr(box),
               Contains("\nLAGGING rank 1 (node1): has completed no operation of the group, rank 0 "
                        "waits in #1 all_reduce sum f32[1000] of group 'world' for ") &&
                   Contains("; in phase 'computing'\nrank 0 on node0 exited with code 1\nFirst victim:\n") &&
                   !Contains("First failure") && Contains("`ddpctl dump` shows"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the verdict has one line about an error that is found at once, and about a circle with a deadline",
          "[e2e]") {
    const auto [how, line_of_it] = GENERATE(table<std::string, std::string>({
        {"mismatch",
         "MISMATCH at #1 of group 'world': rank 0 (node0) all_reduce sum f32[10], rank 1 (node1) all_reduce "
         "sum "
         "f32[11]"},
        {"abort", "ABORTED group 'world': rank 1 (node1) aborted it: 'loss is NaN'"},
        {"hurry", "A CIRCLE: rank "},
        {"sizes",
         "MISMATCH of a send and its receive in group 'world': rank 0 (node0) send #1 f32[10] peer 1 tag 5 "
         "'halo', rank 1 (node1) recv #1 f32[11] peer 0 tag 5\n"},
        {"offers", "MISMATCH of a send and its receive in group 'world': rank 0 (node0) send #1 f32[1048576] "},
        {"zero", "LEFT rank 1 (node1"},
        {"swap", "MISMATCH: rank "},
    }));
    const e2e::Sandbox sandbox("stall-" + how);
    const auto job =
        e2e::run(sandbox,
                 {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--max-restarts", "0"},
                               {STALLING, how})},
                 e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    CHECK_THAT(job.err.substr(box), Contains("\n" + line_of_it));
    if (how == "zero") {
        CHECK_THAT(job.err.substr(box), Contains("): let go of group 'world' after #1 barrier; ") &&
                                            Contains("\nFirst victim:\n  rank        : 0 ") && Contains("ddp::Join"));
    }
    if (how == "swap") CHECK_THAT(job.err.substr(box), Contains("put them into one ProcessGroup::batch()"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the verdict has the text of a rank that leaves by an exception while its peers wait for it", "[e2e]") {
    const e2e::Sandbox sandbox("stall-throws");
    e2e::Outcome job;
    for (int tries = 0; tries < 3; ++tries) {
        job = e2e::run(sandbox, {.argv = line({"--nproc_per_node", "4", "--max-restarts", "0"}, {STALLING, "throws"})},
                       e2e::Seconds(90));
        if (!Contains("too late\n").match(job.out)) break;
    }
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    // A peer has ended before, because it left: that was the first failure that the job received.
    CHECK_THAT(job.err.substr(box), Contains("\nDEAD rank 1 (node ") && Contains("\n  rank        : 1 ") &&
                                        Contains("\n    | the loss is not finite\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the verdict says that the rank that has not arrived was stopped", "[e2e]") {
    const e2e::Sandbox sandbox("stall-halted");
    const auto job =
        e2e::run(sandbox, {.argv = line({"--nproc_per_node", "2", "--max-restarts", "0"}, {STALLING, "halted"})},
                 e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    const auto at = job.out.find("stopping ");
    REQUIRE(at != std::string::npos);
    const std::string pid = job.out.substr(at + 9, job.out.find('\n', at) - at - 9);
    CHECK_THAT(job.err.substr(box), Contains("\nLAGGING rank 1 (node ") &&
                                        Contains("; its process " + pid + " was stopped (a signal, a debugger)\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE(
    "a job that waits for one stopped rank after all others ended well reports it, and ends when the rank goes on",
    "[e2e]") {
    const e2e::Sandbox sandbox("stall-left");
    e2e::Process job(sandbox, {.argv = line({"--nproc_per_node", "3", "--stall-warning", "0"}, {STALLING, "left"})});
    const bool reported = e2e::eventually(e2e::Seconds(60), [&] {
        return job.err().find("LEFT BEHIND rank 1 (node ") != std::string::npos || !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(reported);
    REQUIRE(job.running());
    const std::string out = job.out();
    CHECK_THAT(out, Contains("rank 0 is done") && Contains("rank 2 is done"));
    const auto at = out.find("stopping ");
    REQUIRE(at != std::string::npos);
    const std::string pid = out.substr(at + 9, out.find('\n', at) - at - 9);
    CHECK_THAT(job.err(),
               Contains("all other ranks have exited with code 0, and the job waits for this one: its process " + pid +
                        " is stopped (a signal, a debugger), for ") &&
                   Contains(" or longer: let it go on with kill -CONT " + pid + ", or end the job"));
    REQUIRE(::kill(std::stoi(pid), SIGCONT) == 0);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 1);  // of the error of the one that was left behind
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that arrives in an operation in which its peers have failed accuses none of them", "[e2e]") {
    const e2e::Sandbox sandbox("stall-behind");
    const auto job =
        e2e::run(sandbox, {.argv = line({"--nproc_per_node", "3"}, {STALLING, "behind"})}, e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.success());
    CHECK_THAT(job.out, Contains("rank 1 caught"));
    const auto first = job.err.find("LAGGING rank 1 (node ");
    REQUIRE(first != std::string::npos);
    const auto reported = job.err.find("[the operations of all ranks: ", first);
    REQUIRE(reported != std::string::npos);
    CHECK(job.err.find("[the operations of all ranks: ", reported + 1) == std::string::npos);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a deadline whose error the program catches is reported, also with --stall-warning 0", "[e2e]") {
    const std::string then = GENERATE(as<std::string>{}, "caught", "quit");
    const e2e::Sandbox sandbox("stall-caught");
    const StallReport job = report_of_stall(sandbox, {STALLING, then}, "LAGGING rank 1 (node1)", "0", "caught");
    CHECK_THAT(job.line, Contains("rank 0 waits in #1 all_reduce") && Contains("in phase 'computing'"));
    CHECK_THAT(job.out, Contains("caught"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that the out-of-memory killer ends is reported, with the ranks that waited for it", "[e2e]") {
    const LimitedMemory limited;
    if (!limited.is_there()) {
        WARN("SKIPPED: no control group with a memory limit can be made here");
        return;
    }
    const bool in_script = GENERATE(false, true);
    CAPTURE(in_script);
    const e2e::Sandbox sandbox("stall-memory");
    std::vector<std::string> program{STALLING, "eat"};
    if (in_script) program = {"sh", "-c", fmt::format("'{}' eat; exit $?", STALLING)};
    const auto argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--max-restarts", "0"}, program);
    const auto job = e2e::run(sandbox, {.argv = limited.in(argv)}, e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 137);
    const std::string how = in_script
                                ? "exited with code 137: the kernel's out-of-memory killer has killed a process of it"
                                : "killed by SIGKILL by the kernel's out-of-memory killer";
    CHECK_THAT(job.err, Contains("\nDEAD rank 1 (node1, " + how +
                                 "): had done no collective; in phase 'eating'; rank 0 (node0) waited for it in #1 "
                                 "barrier 'meal' of group 'world'\n") &&
                            Contains("Memory ran out there"));
    CHECK(sandbox.leftovers() == "");
}

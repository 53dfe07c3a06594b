// Jobs that stand still, each for another reason: the one line names the right one.

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;

namespace {

std::vector<std::string> line(const std::vector<std::string>& options, const std::vector<std::string>& program) {
    std::vector<std::string> argv{(e2e::bin() / "ddprun").string()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), program.begin(), program.end());
    return argv;
}

struct Said {
    std::string line;
    std::string out;  ///< of the workers
};

/// What a job of two ranks on two emulated nodes says when it runs into that stall: its first line that begins with
/// `verdict`. Lines before it may be true: a busy machine may keep some rank waiting at the start. It is left alone
/// until its workers have printed `printed`, too.
Said said(const e2e::Sandbox& sandbox, const std::vector<std::string>& program, const std::string& verdict,
          const std::string& warning = "2", const std::string& printed = "") {
    e2e::Process job(
        sandbox, {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--stall-warning", warning},
                               program)});
    std::string found;
    const bool told = e2e::eventually(e2e::Seconds(60), [&] {
        const std::string err = job.err();
        const auto at = err.find(verdict);
        const auto end = at == std::string::npos ? at : err.find('\n', at);
        if (end != std::string::npos) found = err.substr(at, end - at);
        return (!found.empty() && job.out().find(printed) != std::string::npos) || !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(told);
    CHECK(found != "");
    job.signal(SIGINT);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 130);
    return {found, job.out()};
}

/// A control group below our own in which no more than 1 GiB of memory is to be had.
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
    /// That command, with all that it starts, in the group.
    [[nodiscard]] std::vector<std::string> in(std::vector<std::string> argv) const {
        const std::string script = fmt::format("echo $$ > '{}/cgroup.procs' && exec \"$@\"", folder_.string());
        argv.insert(argv.begin(), {"sh", "-c", script, "sh"});
        return argv;
    }

private:
    std::filesystem::path folder_;
};

/// The one that scripts/interop-torch has installed, or the system's; empty: neither has it.
std::string python_with_flight_recorder() {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    const std::filesystem::path folder = cache != nullptr
                                             ? std::filesystem::path(cache)
                                             : std::filesystem::path(home != nullptr ? home : "/") / ".cache";
    const e2e::Sandbox sandbox("flight-recorder");
    for (const std::string& python : {(folder / "ddprun/torch-venv/bin/python").string(), std::string("python3")}) {
        const bool installed = python == "python3" || std::filesystem::exists(python);
        const std::vector<std::string> look{python, "-c", "from torch.distributed.flight_recorder import fr_trace"};
        if (installed && e2e::run(sandbox, {.argv = look}, e2e::Seconds(120)).status.success()) return python;
    }
    return "";
}

}  // namespace

TEST_CASE("a send and a receive with different tags are a mismatch of both", "[e2e]") {
    const e2e::Sandbox sandbox("stall-tags");
    const std::string text = said(sandbox, {STALLING, "tags"}, "MISMATCH: ").line;
    CHECK_THAT(text, Contains("send #1 f32[1048576] peer 1 tag 1") && Contains("recv #1 f32[1048576] peer 0 tag 2") &&
                         Contains("with one tag"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a message under a tag that nobody asks for is told at the deadline, with both sides", "[e2e]") {
    const auto [size, count] = GENERATE(table<std::string, std::string>({{"small", "10"}, {"large", "1048576"}}));
    const bool nodes = GENERATE(false, true);
    CAPTURE(size, nodes);
    const e2e::Sandbox sandbox("stall-" + size);
    std::vector<std::string> options{"--nproc_per_node", nodes ? "1" : "2", "--max-restarts", "0"};
    if (nodes) options.insert(options.end(), {"--nnodes", "2", "--local-nodes"});
    const auto job = e2e::run(sandbox, {.argv = line(options, {STALLING, size})}, e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    CHECK_THAT(job.err.substr(box),
               Contains("\nMISMATCH: rank 1 (node ") &&
                   Contains(") is in recv #1 f32[" + count + "] peer 0 tag 7 of group 'world' for ") &&
                   Contains(", and nobody asks for what rank 0 (node ") &&
                   Contains(") has sent it, send #1 f32[" + count + "] peer 1 tag 5 'halo': the one must send"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("groups whose barriers are called in different orders are a circle", "[e2e]") {
    const e2e::Sandbox sandbox("stall-circle");
    const std::string text = said(sandbox, {STALLING, "circle"}, "A CIRCLE: ").line;
    for (const std::string name : {"'first of world'", "'second (split 2) of world'"}) CHECK_THAT(text, Contains(name));
    CHECK_THAT(text, Contains("waits in #1 barrier of group '") &&
                         Contains("), which waits in #1 barrier of group '") && Contains("in one order"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that computes lags behind, whatever it has under way", "[e2e]") {
    const auto how = GENERATE(as<std::string>(), "posted", "finisher", "meeting");
    const e2e::Sandbox sandbox("stall-" + how);
    const std::string text = said(sandbox, {STALLING, how}, "LAGGING rank 1 (node node1)").line;
    CHECK_THAT(text, Contains("rank 0 waits in #1 ") && Contains("in phase 'computing'"));
    if (how == "meeting") CHECK_THAT(text, Contains("monitored_barrier 'save' of group 'world (store)'"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("under a wrapper script the process that is looked at is the trainer's", "[e2e]") {
    const auto wrapper =
        GENERATE(as<std::string>(), "", "setsid -w ", "timeout 600 ");  // the others: in a group of its own
    const e2e::Sandbox sandbox("stall-wrapper");
    const Said job = said(sandbox, {"sh", "-c", fmt::format("{}'{}' stopped; echo wrapped", wrapper, STALLING)},
                          "LAGGING rank 1 (node node1)");
    const auto at = job.out.find("stopping ");
    INFO(job.line << "\n" << job.out);
    REQUIRE(at != std::string::npos);
    const std::string pid = job.out.substr(at + 9, job.out.find('\n', at) - at - 9);
    CHECK_THAT(job.line, Contains("its process " + pid + " is stopped (a signal, a debugger): kill -CONT " + pid));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ranks that wait for one to appear are told of while they wait, and why it never will", "[e2e]") {
    const auto [how, verdict] = GENERATE(table<std::string, std::string>(
        {{"exec sleep 1000",
          "WAITING for rank 1 (node node1), which has shown no board: peers wait in #1 init_from_env "},
         {"exit 0", "DEAD rank 1 (node node1, exited with code 0, "}}));
    const e2e::Sandbox sandbox("stall-init");
    const std::string program = fmt::format("[ $RANK = 0 ] || {}; exec '{}' stopped", how, STALLING);
    CHECK_THAT(said(sandbox, {"sh", "-c", program}, verdict).line,
               Contains("in #1 init_from_env of group 'world (init)' for ") && Contains("ddp::init_from_env()"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an operation that fails by its deadline ends the job with the rank that had not come", "[e2e]") {
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
               Contains("\nLAGGING rank 1 (node node1): has finished nothing of the group, rank 0 "
                        "waits in #1 all_reduce sum f32[1000] of group 'world' for ") &&
                   Contains("; in phase 'computing'\nrank 0 on node0 exited with code 1\nThe first to fail of "
                            "that:\n") &&
                   !Contains("First failure") && Contains("`ddpctl dump` shows"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the box has one line about an error that is found at once, and about a circle with a deadline", "[e2e]") {
    const auto [how, line_of_it] = GENERATE(table<std::string, std::string>({
        {"mismatch",
         "MISMATCH at #1 of group 'world': rank 0 (node node0) all_reduce sum f32[10], rank 1 (node node1) all_reduce "
         "sum "
         "f32[11]"},
        {"abort", "ABORTED group 'world': rank 1 (node node1) gave it up: 'loss is NaN'"},
        {"hurry", "A CIRCLE: rank "},
        {"sizes",
         "MISMATCH of a send and its receive in group 'world': rank 0 (node node0) send #1 f32[10] peer 1 tag 5 "
         "'halo', rank 1 (node node1) recv #1 f32[11] peer 0 tag 5\n"},
        {"offers", "MISMATCH of a send and its receive in group 'world': rank 0 (node node0) send #1 f32[1048576] "},
        {"zero", "LEFT rank 1 (node node1"},
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
                                            Contains("\nThe first to fail of that:\n  rank        : 0 ") &&
                                            Contains("ddp::Join"));
    }
    if (how == "swap") CHECK_THAT(job.err.substr(box), Contains("put them into one ProcessGroup::batch()"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that leaves by an exception while its peers wait for it says its own words in the box", "[e2e]") {
    const e2e::Sandbox sandbox("stall-throws");
    const auto job =
        e2e::run(sandbox, {.argv = line({"--nproc_per_node", "4", "--max-restarts", "0"}, {STALLING, "throws"})},
                 e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.exit_code() == 1);
    const auto box = job.err.find("FAILED\n");
    REQUIRE(box != std::string::npos);
    // A peer has ended before, of its leaving: that was the first failure that the job heard of.
    CHECK_THAT(job.err.substr(box), Contains("\nDEAD rank 1 (node ") && Contains("\n  rank        : 1 ") &&
                                        Contains("\n    | the loss is not finite\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the box says that the rank that had not come was stopped", "[e2e]") {
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

TEST_CASE("a job whose ranks have all ended well but one that is stopped says so, and ends when that goes on",
          "[e2e]") {
    const e2e::Sandbox sandbox("stall-left");
    e2e::Process job(sandbox, {.argv = line({"--nproc_per_node", "3", "--stall-warning", "0"}, {STALLING, "left"})});
    const bool told = e2e::eventually(e2e::Seconds(60), [&] {
        return job.err().find("LEFT BEHIND rank 1 (node ") != std::string::npos || !job.running();
    });
    INFO("stdout:\n" << job.out() << "stderr:\n" << job.err());
    CHECK(told);
    REQUIRE(job.running());
    const std::string out = job.out();
    CHECK_THAT(out, Contains("rank 0 is done") && Contains("rank 2 is done"));
    const auto at = out.find("stopping ");
    REQUIRE(at != std::string::npos);
    const std::string pid = out.substr(at + 9, out.find('\n', at) - at - 9);
    CHECK_THAT(job.err(), Contains("all other ranks have ended well, and the job waits for this one: its process " +
                                   pid + " is stopped (a signal, a debugger), for ") &&
                              Contains(" or longer: let it go on with kill -CONT " + pid + ", or end the job"));
    REQUIRE(::kill(std::stoi(pid), SIGCONT) == 0);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 1);  // of the error of the one that was left behind
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("who comes to an operation that its peers have failed in blames none of them", "[e2e]") {
    const e2e::Sandbox sandbox("stall-behind");
    const auto job =
        e2e::run(sandbox, {.argv = line({"--nproc_per_node", "3"}, {STALLING, "behind"})}, e2e::Seconds(90));
    INFO("stdout:\n" << job.out << "stderr:\n" << job.err);
    CHECK(job.status.success());
    CHECK_THAT(job.out, Contains("rank 1 caught"));
    const auto first = job.err.find("LAGGING rank 1 (node ");
    REQUIRE(first != std::string::npos);
    const auto told = job.err.find(" [all ranks: ", first);
    REQUIRE(told != std::string::npos);
    CHECK(job.err.find(" [all ranks: ", told + 1) == std::string::npos);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a deadline whose error the program catches is told, also where nothing else is to be", "[e2e]") {
    const std::string then = GENERATE(as<std::string>{}, "caught", "quit");
    const e2e::Sandbox sandbox("stall-caught");
    const Said job = said(sandbox, {STALLING, then}, "LAGGING rank 1 (node node1)", "0", "caught");
    CHECK_THAT(job.line, Contains("rank 0 waits in #1 all_reduce") && Contains("in phase 'computing'"));
    CHECK_THAT(job.out, Contains("caught"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that the kernel kills, for memory has run out, is told so, and who waited for it", "[e2e]") {
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
    CHECK_THAT(job.err,
               Contains("\nDEAD rank 1 (node node1, " + how +
                        "): had done no collective; in phase 'eating'; rank 0 (node node0) waited for it in #1 "
                        "barrier 'meal' of group 'world'\n") &&
                   Contains("Memory ran out there"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("PyTorch's analysis of a dump names the rank that has not come, and to what", "[e2e]") {
    const std::string python = python_with_flight_recorder();
    if (python.empty()) {
        WARN(
            "SKIPPED: no PyTorch with torch.distributed.flight_recorder here (scripts/interop-torch --keep installs "
            "one)");
        return;
    }
    const e2e::Sandbox sandbox("stall-analysis");
    e2e::Process job(sandbox,
                     {.argv = line({"--nnodes", "2", "--nproc_per_node", "1", "--local-nodes", "--stall-warning", "2",
                                    "--rdzv-endpoint", fmt::format("127.0.0.1:{}", e2e::free_port())},
                                   {STALLING, "posted"})});
    const std::string advice = "ddpctl dump --rdzv-endpoint ";
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return job.err().find(advice) != std::string::npos; }));
    const auto at = job.err().find(advice) + advice.size();
    const std::string endpoint = job.err().substr(at, job.err().find(']', at) - at);
    const std::string folder = (sandbox.path() / "boards").string();
    const auto dump = e2e::run(
        sandbox, {.argv = {(e2e::bin() / "ddpctl").string(), "dump", "--rdzv-endpoint", endpoint, "--output", folder}});
    INFO(dump.out << dump.err);
    CHECK(dump.status.success());
    job.signal(SIGINT);
    CHECK(job.wait(e2e::Seconds(60)).exit_code() == 130);

    const auto said = e2e::run(sandbox, {.argv = {python, FR_TRACE, folder}}, e2e::Seconds(120));
    const std::string text = said.out + said.err;
    INFO(text);
    CHECK(said.status.success());
    const auto collective = text.find("collective: nccl:all_reduce");
    REQUIRE(collective != std::string::npos);
    CHECK_THAT(text.substr(collective),
               Catch::StartsWith("collective: nccl:all_reduce\nmissing ranks: {1}\ninput sizes: "
                                 "[[1000]]\noutput sizes: [[1000]]\nworld size: 2\nexpected "
                                 "ranks: {0, 1}\ncollective state: started\n"));
    CHECK_THAT(text, Contains("collective: nccl:recv 1<-0\nmissing ranks: {0}\ninput sizes: [[1]]\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("between hosts that do not reach each other it is the transport", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("stall-transport");
    const e2e::Hosts hosts(sandbox, 3);
    const auto argv =
        line({"--nnodes", "3", "--nproc_per_node", "1", "--rdzv-endpoint", "n3:29400", "--stall-warning", "2"},
             {STALLING, "loop"});
    e2e::Process third(sandbox, hosts.on("n3", argv));
    e2e::Process first(sandbox, hosts.on("n1", argv));
    e2e::Process second(sandbox, hosts.on("n2", argv));
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return third.out().find("looping") != std::string::npos; }));
    hosts.call({"partition", "n1", "n2"});
    const bool told = e2e::eventually(e2e::Seconds(30), [&] {
        const std::string err = third.err();
        const auto at = err.find("ALL PRESENT but no progress: transport, or work that takes long: rank");
        if (at == std::string::npos) return false;
        const std::string line = err.substr(at, err.find('\n', at) - at);
        const auto says = [&](const char* words) { return line.find(words) != std::string::npos; };
        // One of the two alone, if the other had its part already and is in the next one.
        return (says("0 (node n1)") || says("1 (node n2)")) && says(" all_reduce sum f32[65536] of group 'world' for ");
    });
    INFO("n1:\n" << first.err() << "n2:\n" << second.err() << "n3:\n" << third.err());
    CHECK(told);  // the two that do not reach each other, and what they are in
    for (const e2e::Process* job : {&first, &second, &third}) job->signal(SIGINT);
    for (e2e::Process* job : {&first, &second, &third}) (void)job->wait(e2e::Seconds(60));
}

// Jobs that end, and leave nothing, although something makes it hard: a fork bomb, a console that takes nothing, a node
// that comes back to its leftovers, a container that ends with its first process.

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

using Catch::Contains;

std::string program() { return e2e::bin() / "ddprun"; }

e2e::Command shell(const std::string& script) { return {{"sh", "-c", script}, {}, {}}; }

std::ptrdiff_t lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

/// Returns the agent below this guard; -1 if there is none.
pid_t agent_below(const e2e::Sandbox& sandbox, pid_t guard) {
    for (const pid_t pid : sandbox.pids("ddprun")) {
        const std::string command = e2e::read_file(fmt::format("/proc/{}/cmdline", pid));
        if (ddprun::parent_of(pid) == guard && !command.starts_with("ddprun-keeper")) return pid;
    }
    return -1;
}

/// PidsLimit: a group of the pids controller that allows 80 processes.
class PidsLimit {
public:
    PidsLimit() {
        for (const std::string root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
            folder_ = fmt::format("{}/ddprun-test-{}", root, ::getpid());
            if (::mkdir(folder_.c_str(), 0755) != 0) continue;
            if (::access((folder_ + "/pids.max").c_str(), W_OK) == 0) {
                e2e::write_file(folder_ + "/pids.max", "80");
                return;
            }
            ::rmdir(folder_.c_str());
        }
        folder_.clear();
    }
    ~PidsLimit() {
        if (!folder_.empty()) (void)e2e::eventually(e2e::Seconds(10), [&] { return ::rmdir(folder_.c_str()) == 0; });
    }
    PidsLimit(const PidsLimit&) = delete;
    PidsLimit& operator=(const PidsLimit&) = delete;

    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::ptrdiff_t processes() const { return lines_of(listed()); }
    [[nodiscard]] std::string listed() const { return e2e::read_file(folder_ + "/cgroup.procs"); }

private:
    std::string folder_;  ///< empty: this process may not make one
};

}  // namespace

TEST_CASE("a fork bomb ends with its job, also with the guard alone", "[e2e]") {
    const e2e::Sandbox sandbox("bomb");
    const PidsLimit limit;
    if (limit.folder().empty()) {
        WARN("SKIPPED: this user may not limit the number of processes by a control group");
        return;
    }
    const std::string end = GENERATE(as<std::string>(), "SIGTERM", "the agent is killed");
    CAPTURE(end);
    e2e::Process process(sandbox, shell(fmt::format("echo $$ >{}/cgroup.procs; exec {} --fence guard "
                                                    "--shutdown-timeout 0.2 {} bomb",
                                                    limit.folder(), program(), ESCAPING)));
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return limit.processes() >= 80; }));
    pid_t agent = -1;  // a search through so many new processes may miss it
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return (agent = agent_below(sandbox, process.pid())) > 0; }));
    if (end == "SIGTERM")
        process.signal(SIGTERM);
    else
        ::kill(agent, SIGKILL);
    CHECK(process.wait(e2e::Seconds(30)).exit_code() == (end == "SIGTERM" ? 143 : 137));
    INFO(process.err());
    if (!e2e::eventually(e2e::Seconds(20), [&] { return limit.processes() == 0; }))
        FAIL_CHECK("left: " << fmt::format("{}\n{}", fmt::join(sandbox.processes(), "\n"), limit.listed()));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a start that others leave too few processes for ends with one message", "[e2e]") {
    const e2e::Sandbox sandbox("few-processes");
    const PidsLimit limit;
    if (limit.folder().empty()) {
        WARN("SKIPPED: this user may not limit the number of processes by a control group");
        return;
    }
    const auto outcome = e2e::run(
        sandbox, shell(fmt::format(
                     "echo $$ >{}/cgroup.procs; i=0; while [ $i -lt 66 ]; do sleep 1000 & pids=\"$pids $!\"; "
                     "i=$((i + 1)); done; {} --nproc-per-node 16 sleep 1000; code=$?; kill $pids; wait; exit $code",
                     limit.folder(), program())));
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 69);
    CHECK_THAT(outcome.err, Catch::Contains("INFRASTRUCTURE FAILURE") && Catch::Contains("could not start rank ") &&
                                Catch::Contains("The limit of processes is reached: raise `ulimit -u`"));
    CHECK(limit.processes() == 0);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a failed job of emulated nodes can be ended while the console takes nothing", "[e2e]") {
    const e2e::Sandbox sandbox("full-console");
    const std::string script = "while :; do printf %0500d 1; echo; done";
    e2e::Process process(
        sandbox,
        shell(fmt::format("({} --nnodes 2 --local-nodes --shutdown-timeout 0.2 sh -c '{}' 2>&1; echo $? >{}) | "
                          "exec sleep 1000",
                          program(), script, (sandbox.path() / "code").string())));
    const auto worker = [&] {
        for (const pid_t pid : sandbox.pids(script)) {
            if (e2e::read_file(fmt::format("/proc/{}/environ", pid)).find("DDPRUN_GENERATION=") != std::string::npos)
                return pid;
        }
        return pid_t(-1);
    };
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return worker() > 0; }));
    ::kill(worker(), SIGKILL);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return worker() < 0; }));
    for (const pid_t pid : sandbox.pids("--local-nodes")) {
        const std::string command = e2e::read_file(fmt::format("/proc/{}/cmdline", pid));
        if (command.find("--as-local-node") == std::string::npos && !command.starts_with("sh")) ::kill(pid, SIGTERM);
    }
    CHECK(e2e::eventually(e2e::Seconds(30), [&] { return e2e::read_file(sandbox.path() / "code") != ""; }));
    for (const pid_t pid : sandbox.pids("sleep 1000")) ::kill(pid, SIGTERM);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node that comes back ends what its earlier ddprun has left there", "[e2e]") {
    const e2e::Sandbox sandbox("comes-back");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const std::string end = sandbox.path() / "end";
    const std::string script = "setsid sleep 1000 & echo up; while [ ! -e " + end + " ]; do sleep 0.05; done";
    std::vector<std::string> line{program(), "--fence", "guard", "--nnodes", "1:2", "--rdzv-id", "back"};
    line.insert(line.end(), {"--rdzv-endpoint", endpoint, "--max-restarts", "5", "sh", "-c", script});
    e2e::Process stays(sandbox, {line, {}, {}});
    REQUIRE(
        e2e::eventually(e2e::Seconds(20), [&] { return Contains("only this machine can join").match(stays.err()); }));
    e2e::Process lost(sandbox, {line, {{"LOST", "yes"}}, {}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(lost.out()) == 1; }));
    const pid_t agent = agent_below(sandbox, lost.pid());
    REQUIRE(agent > 0);
    const auto sleepers = [&](const std::string& of) {
        std::vector<pid_t> found = sandbox.pids("sleep 1000");
        std::erase_if(found, [&](pid_t pid) {
            const std::string folder = fmt::format("/proc/{}/", pid);
            return e2e::read_file(folder + "cmdline") != std::string("sleep\0001000\0", 11) ||
                   e2e::read_file(folder + "environ").find(of) == std::string::npos;
        });
        return found.size();
    };
    const auto left_by_lost = [&] { return sleepers("LOST=yes"); };
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return left_by_lost() == 1; }));
    const auto restarts = lines_of(stays.out());
    lost.signal(SIGSTOP);  // so that the guard cannot act on the agent's end
    ::kill(agent, SIGKILL);
    lost.signal(SIGKILL);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(stays.out()) > restarts; }));
    CHECK(left_by_lost() == 1);  // the hole of the guard alone

    e2e::Process back(sandbox, {line, {}, {}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(back.out()) >= 1; }));
    CHECK(left_by_lost() == 0);
    CHECK_THAT(back.err(), Contains("killed 1 process that an earlier ddprun of this job had left here"));
    CHECK(e2e::eventually(e2e::Seconds(20), [&] { return sleepers("DDPRUN_GENERATION=3") >= 2; }));  // not killed
    e2e::write_file(end, "");
    CHECK(stays.wait(e2e::Seconds(20)).exit_code() == 0);
    CHECK(back.wait(e2e::Seconds(20)).exit_code() == 0);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a daemon in a container goes on for the other nodes when its own node has ended", "[e2e]") {
    const e2e::Sandbox sandbox("container");
    const std::vector<std::string> container{"unshare", "--pid", "--fork", "--mount-proc"};
    auto probe = container;
    probe.push_back("true");
    if (!e2e::run(sandbox, {probe, {}, {}}).status.success()) {
        WARN("SKIPPED: this user may not make a pid namespace");
        return;
    }
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const std::string end = sandbox.path() / "end";
    std::vector<std::string> line{program(), "--nnodes", "1:2", "--rdzv-endpoint", endpoint};
    line.insert(line.end(), {"--rdzv-conf", "last_call_timeout=0.2", "--max-restarts", "5"});
    line.insert(line.end(), {"sh", "-c", "echo up; while [ ! -e " + end + " ]; do sleep 0.05; done"});
    auto inside = container;
    inside.insert(inside.end(), line.begin(), line.end());
    e2e::Process first(sandbox, {inside, {}, {}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(first.out()) == 1; }));
    e2e::Process second(sandbox, {line, {}, {}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(second.out()) == 1; }));
    const auto guards = [&] {
        std::vector<pid_t> pids = sandbox.pids("ddprun-guard");
        std::erase_if(pids, [&](pid_t pid) { return ddprun::parent_of(pid) != first.pid(); });
        return pids;
    };
    REQUIRE(guards().size() == 1);
    const pid_t guard = guards()[0];
    ::kill(guard, SIGTERM);
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return lines_of(second.out()) == 2; }));  // started again, alone
    REQUIRE(e2e::eventually(e2e::Seconds(20),
                            [&] { return first.err().find("waiting for ddprund (pid ") != std::string::npos; }));
    CHECK(first.running());

    const bool cut_short = GENERATE(false, true);
    CAPTURE(cut_short);
    if (cut_short)
        ::kill(guard, SIGTERM);
    else
        e2e::write_file(end, "");
    CHECK(first.wait(e2e::Seconds(20)).exit_code() == 143);
    CHECK(second.wait(e2e::Seconds(20)).exit_code() == (cut_short ? 69 : 0));
    CHECK(sandbox.leftovers() == "");
}

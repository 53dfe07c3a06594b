// Nothing that a job has started outlives it, whatever is killed, with each fence (docs/design/019). One job runs seven
// workers that each try to escape in another way. DDPRUN_FENCE_RUNS sets the number of jobs per target and fence.

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "agent/guard/fence_group.hpp"
#include "common/exit_codes.hpp"
#include "common/system/process_state.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

using Catch::Contains;
using Clock = std::chrono::steady_clock;

constexpr int kWays = 7;        // of escaping.cpp
constexpr int kJobsAtOnce = 4;  // each has a dozen processes, that fork all the time
constexpr double kGoal = 2;     // seconds until nothing is left; a busy machine may take longer
constexpr double kLimit = 30;

enum class Target { kWorker, kAgent, kGuard, kAgentAndGuard, kLauncher };

std::string name_of(Target target, bool agent_stopped) {
    const auto name = [&]() -> std::string {
        switch (target) {
            case Target::kWorker: return "worker";
            case Target::kAgent: return "agent";
            case Target::kGuard: return "guard";
            case Target::kAgentAndGuard: return "agent and guard";
            case Target::kLauncher: return "launcher of emulated nodes";
        }
        return "";
    };
    return name() + (agent_stopped ? ", agents stopped" : "");
}

int runs_per_cell() {
    const char* runs = std::getenv("DDPRUN_FENCE_RUNS");
    return runs != nullptr ? std::max(1, std::atoi(runs)) : kJobsAtOnce;
}

bool is_free(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const ddprun::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

std::string command_of(pid_t pid) { return e2e::read_file(fmt::format("/proc/{}/cmdline", pid)); }

/// One job, from its start to the end of the last process that it has started.
class Job {
public:
    Job(const std::string& fence, Target target, bool stops_agents)
        : sandbox_("fence"), target_(target), stops_agents_(stops_agents), nodes_(target == Target::kLauncher ? 2 : 1) {
        std::vector<std::string> argv{
            e2e::bin() / "ddprun", "--fence", fence, "--nproc-per-node", std::to_string(kWays),
            "--shutdown-timeout",  "0.3"};
        if (nodes_ > 1) argv.insert(argv.end(), {"--nnodes", std::to_string(nodes_), "--local-nodes"});
        argv.push_back(ESCAPING);
        process_ = std::make_unique<e2e::Process>(sandbox_, e2e::Command{argv, {}, {}});
    }

    [[nodiscard]] bool is_up() const {
        const std::string out = process_->out();
        return std::ranges::count(out, '\n') == nodes_ * kWays;
    }

    /// Stops the agents, if asked, and kills the target. Returns false if it cannot be found.
    bool strike() {
        const std::vector<pid_t> workers = sandbox_.pids("escaping");
        const std::string mountinfo = e2e::read_file("/proc/self/mountinfo");
        for (const pid_t worker : workers) {
            const auto folder =
                ddprun::agent::control_group_folder(mountinfo, e2e::read_file(fmt::format("/proc/{}/cgroup", worker)));
            if (folder && folder->find("/ddprun-") != std::string::npos) groups_.insert(*folder);
        }
        const pid_t guard = process_->pid();
        std::vector<pid_t> led = sandbox_.pids("ddprun");  // by guards: the agents, and a launcher
        std::erase_if(led, [](pid_t pid) {
            return !command_of(ddprun::parent_of(pid)).starts_with("ddprun-guard") ||
                   command_of(pid).starts_with("ddprun-");
        });
        const auto below = std::ranges::find(led, guard, ddprun::parent_of);
        if (below == led.end()) return false;
        const pid_t agent = *below;  // or launcher
        if (stops_agents_)
            for (const pid_t stopped : led)
                if (target_ != Target::kLauncher || stopped != agent) ::kill(stopped, SIGSTOP);
        struck_ = Clock::now();
        switch (target_) {
            case Target::kWorker: {
                const auto worker =
                    std::ranges::find_if(workers, [&](pid_t pid) { return ddprun::parent_of(pid) == agent; });
                return worker != workers.end() && ::kill(*worker, SIGKILL) == 0;
            }
            case Target::kAgent:
            case Target::kLauncher: return ::kill(agent, SIGKILL) == 0;
            case Target::kGuard: return ::kill(guard, SIGKILL) == 0;
            case Target::kAgentAndGuard:  // it is stopped first, so that it cannot act on the agent's end
                ::kill(guard, SIGSTOP);
                return ::kill(agent, SIGKILL) == 0 && ::kill(guard, SIGKILL) == 0;
        }
        return false;
    }

    /// Returns whether every process that the workers have started has ended, and notes when that is seen first.
    bool is_empty() {
        for (; free_ < nodes_ * kWays; ++free_) {
            if (!is_free(fmt::format("ddprun-escape-{}-{}", sandbox_.marker(), free_))) return false;
        }
        if (seconds_ < 0) seconds_ = std::chrono::duration<double>(Clock::now() - struck_).count();
        return true;
    }

    [[nodiscard]] double seconds() const { return seconds_; }

    /// Waits for the end of the rest. Returns what is left, processes and control groups; empty: nothing.
    std::string leftovers() {
        (void)process_->wait(e2e::Seconds(kLimit));
        std::string left = sandbox_.leftovers();
        const bool removed = e2e::eventually(e2e::Seconds(10), [&] {
            return std::ranges::none_of(groups_, [](const auto& group) { return std::filesystem::exists(group); });
        });
        if (!removed) left += fmt::format("control group {}\n", *groups_.begin());
        return left;
    }

    [[nodiscard]] std::string err() const { return process_->err(); }

private:
    e2e::Sandbox sandbox_;
    Target target_;
    bool stops_agents_;
    int nodes_;
    std::unique_ptr<e2e::Process> process_;
    std::set<std::string> groups_;  ///< the folders of the control groups of the workers
    Clock::time_point struck_;
    int free_ = 0;  ///< ranks of which nothing is left
    double seconds_ = -1;
};

/// Returns why this machine does not offer the fence; empty: it does.
std::string missing(const std::string& fence) {
    const e2e::Sandbox sandbox("fence-probe");
    const e2e::Outcome outcome = e2e::run(sandbox, {{e2e::bin() / "ddprun", "--fence", fence, "true"}, {}, {}});
    if (outcome.status.success()) return "";
    CAPTURE(outcome.err);
    REQUIRE(outcome.status.exit_code() == ddprun::exit_code::kUsage);
    REQUIRE(outcome.err.find(fmt::format("--fence {}: ", fence)) != std::string::npos);
    return outcome.err;
}

/// Runs `count` jobs at once and adds the seconds that each needed to `seconds`.
void run_jobs(const std::string& fence, Target target, bool stops_agents, int count, std::vector<double>& seconds) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (int i = 0; i < count; ++i) jobs.push_back(std::make_unique<Job>(fence, target, stops_agents));
    const bool up = e2e::eventually(
        e2e::Seconds(60), [&] { return std::ranges::all_of(jobs, [](const auto& job) { return job->is_up(); }); });
    INFO(jobs[0]->err());
    REQUIRE(up);
    for (const auto& job : jobs) REQUIRE(job->strike());
    CHECK(e2e::eventually(e2e::Seconds(kLimit), [&] {
        return std::ranges::count_if(jobs, [](const auto& job) { return job->is_empty(); }) == count;
    }));
    for (const auto& job : jobs) {
        CHECK(job->leftovers() == "");
        seconds.push_back(job->seconds());
    }
}

}  // namespace

TEST_CASE("nothing is left, whatever is killed", "[e2e]") {
    const std::string fence = GENERATE(as<std::string>(), "cgroup", "namespace", "guard");
    const Target target =
        GENERATE(Target::kWorker, Target::kAgent, Target::kGuard, Target::kAgentAndGuard, Target::kLauncher);
    const bool stops_agents = GENERATE(false, true);
    CAPTURE(fence, name_of(target, stops_agents));
    if (target == Target::kWorker && stops_agents) return;             // nothing happens until the agents go on
    if (fence == "guard" && target == Target::kAgentAndGuard) return;  // the gap that a fence closes
    if (const std::string why = missing(fence); !why.empty()) {
        WARN("SKIPPED: this machine does not offer the fence: " << why);
        return;
    }
    std::vector<double> seconds;
    for (int left = runs_per_cell(); left > 0; left -= kJobsAtOnce)
        run_jobs(fence, target, stops_agents, std::min(left, kJobsAtOnce), seconds);
    std::ranges::sort(seconds);
    fmt::print("{:<43}{:<11}{:>4} runs, {} with processes left after {} s; median {:.3f} s, slowest {:.3f} s\n",
               name_of(target, stops_agents), fence, seconds.size(),
               std::ranges::count_if(seconds, [](double s) { return s < 0 || s > kGoal; }), kGoal,
               seconds[seconds.size() / 2], seconds.back());
}

TEST_CASE("workers that are started again after others had to be killed live", "[e2e]") {
    const std::string fence = GENERATE(as<std::string>(), "cgroup", "namespace", "guard");
    if (const std::string why = missing(fence); !why.empty()) {
        WARN("SKIPPED: this machine does not offer the fence: " << why);
        return;
    }
    const e2e::Sandbox sandbox("fence-again");
    // The last ones are themselves ddprun, in a group that was killed while their own was not.
    const std::string worker = fmt::format(
        "trap '' TERM; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exec {} --fence {} true; "
        "[ $RANK = 0 ] && sleep 0.3 && exit 9; sleep 1000",
        (e2e::bin() / "ddprun").string(), fence);
    const e2e::Outcome outcome =
        e2e::run(sandbox, {{e2e::bin() / "ddprun", "--fence", fence, "--nproc-per-node", "2", "--max-restarts", "2",
                            "--shutdown-timeout", "0.2", "sh", "-c", worker},
                           {},
                           {}});
    INFO(outcome.err);
    CHECK(outcome.status.success());
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun -v names the fence once, that of the first node", "[e2e]") {
    const e2e::Sandbox sandbox("fence-named");
    std::vector<std::string> argv{e2e::bin() / "ddprun", "-v", "--fence", "guard"};
    if (GENERATE(false, true)) argv.insert(argv.end(), {"--nnodes", "2", "--local-nodes"});
    argv.push_back("true");
    const e2e::Outcome outcome = e2e::run(sandbox, {argv, {}, {}});
    CHECK(outcome.status.success());
    const auto first = outcome.err.find("fence: the guard alone");
    CHECK(first != std::string::npos);
    CHECK(outcome.err.find("fence: ", first + 1) == std::string::npos);
}

TEST_CASE("a process that others move into the fence does not hold up the end of a job", "[e2e]") {
    if (const std::string why = missing("cgroup"); !why.empty()) {
        WARN("SKIPPED: this machine does not offer the fence: " << why);
        return;
    }
    const e2e::Sandbox sandbox("fence-moved");
    const std::string folder = sandbox.path().string();
    const std::string worker = fmt::format("echo $$ > {0}/pid; until [ -e {0}/go ]; do sleep 0.05; done", folder);
    e2e::Process job(sandbox, {{e2e::bin() / "ddprun", "--fence", "cgroup", "sh", "-c", worker}, {}, {}});
    std::string pid;
    REQUIRE(e2e::eventually(e2e::Seconds(kLimit), [&] {
        std::error_code absent;  // the worker has not come that far
        if (!std::filesystem::exists(folder + "/pid", absent)) return false;
        pid = e2e::read_file(folder + "/pid");
        return pid.ends_with('\n');
    }));
    pid.pop_back();
    const auto group = ddprun::agent::control_group_folder(e2e::read_file("/proc/self/mountinfo"),
                                                           e2e::read_file(fmt::format("/proc/{}/cgroup", pid)));
    REQUIRE(group);
    REQUIRE(group->find("/ddprun-") != std::string::npos);
    e2e::Process moved(sandbox, {{"sleep", "1000"}, {}, {}});
    e2e::write_file(*group + "/cgroup.procs", std::to_string(moved.pid()));
    e2e::write_file(sandbox.path() / "go", "");
    CHECK(job.wait(e2e::Seconds(kLimit)).success());
    CHECK(moved.wait(e2e::Seconds(kLimit)).number == SIGKILL);
    CHECK_FALSE(std::filesystem::exists(*group));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a start removes empty control groups of launchers that were killed, and no others", "[e2e]") {
    if (const std::string why = missing("cgroup"); !why.empty()) {
        WARN("SKIPPED: this machine does not offer the fence: " << why);
        return;
    }
    const auto own = ddprun::agent::control_group_folder(e2e::read_file("/proc/self/mountinfo"),
                                                         e2e::read_file("/proc/self/cgroup"));
    REQUIRE(own);
    const e2e::Sandbox sandbox("fence-abandoned");
    e2e::Process ended(sandbox, {{"true"}, {}, {}});
    REQUIRE(ended.wait(e2e::Seconds(kLimit)).success());
    struct stat of_pids {};
    REQUIRE(::stat("/proc/self/ns/pid", &of_pids) == 0);
    const auto pids = of_pids.st_ino;
    const std::string abandoned = fmt::format("{}/ddprun-{}-{}-0", *own, pids, ended.pid());
    e2e::Process apart(sandbox, {{"unshare", "--pid", "--fork", "--kill-child", "sleep", "60"}, {}, {}});
    const auto other_namespace = [&] {
        struct stat of_child {};
        const std::string path = fmt::format("/proc/{}/ns/pid_for_children", apart.pid());
        return ::stat(path.c_str(), &of_child) == 0 ? of_child.st_ino : 0;
    };
    REQUIRE(e2e::eventually(e2e::Seconds(kLimit), [&] { return other_namespace() != 0 && other_namespace() != pids; }));
    const std::string of_others = fmt::format("{}/ddprun-{}-{}-0", *own, other_namespace(), ended.pid());
    const std::string of_ended = fmt::format("{}/ddprun-1-{}-0", *own, ::getpid());  // no namespace has that number
    const std::string used = fmt::format("{}/ddprun-{}-{}-0", *own, pids, ::getpid());
    std::filesystem::create_directories(abandoned + "/inner");
    std::filesystem::create_directory(of_others);
    std::filesystem::create_directory(of_ended);
    std::filesystem::create_directory(used);
    CHECK(e2e::run(sandbox, {{e2e::bin() / "ddprun", "--fence", "cgroup", "true"}, {}, {}}).status.success());
    CHECK_FALSE(std::filesystem::exists(abandoned));
    CHECK(std::filesystem::exists(of_others));  // the launcher may live in its pid namespace
    constexpr ino_t kInitial = 0xEFFFFFFC;      // another namespace does not see all processes
    CHECK(std::filesystem::exists(of_ended) == (pids != kInitial));
    CHECK(std::filesystem::exists(used));
    for (const std::string& left : {of_others, of_ended, used}) std::filesystem::remove(left);
}

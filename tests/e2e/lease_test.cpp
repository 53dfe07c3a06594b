// Faults that are shorter than the lease of a node leave the job as it is. After a longer one, no worker of the old
// generation runs beside one of the next (docs/design/026).

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "common/system/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/proxy.hpp"

using e2e::eventually;
using e2e::Seconds;

namespace {

/// A worker that adds a line to the file `steps` 20 times per second, until there is a file `end`. The worker that
/// STUBBORN names ignores SIGTERM.
constexpr const char* kWorker = R"(
host=$(uname -n)
if [ "$host $LOCAL_RANK" = "$STUBBORN" ]; then trap '' TERM; fi
while [ ! -e end ]; do
    echo "$(date +%s.%N) $DDPRUN_GENERATION $RANK $host" >> steps
    sleep 0.05
done
)";

/// Returns the time of day in seconds, as the workers write it. Virtual hosts share only this clock.
double now() { return Seconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

struct WorkerStep {
    double time = 0;
    int generation = 0;
    int rank = 0;
    std::string host;
};

/// Returns the steps of all workers, in the order in which they were written.
std::vector<WorkerStep> steps_in(const e2e::Sandbox& sandbox) {
    std::string text = e2e::read_file(sandbox.path() / "steps");
    text.resize(text.rfind('\n') + 1);  // without a line that is being written
    std::istringstream lines(text);
    std::vector<WorkerStep> steps;
    for (WorkerStep step; lines >> step.time >> step.generation >> step.rank >> step.host;) steps.push_back(step);
    return steps;
}

/// Waits until each of `ranks` ranks has made a step of a time after `time`.
[[nodiscard]] bool all_step_after(double time, int ranks, const e2e::Sandbox& sandbox) {
    return eventually(Seconds(20), [&] {
        std::set<int> seen;
        for (const WorkerStep& step : steps_in(sandbox))
            if (step.time > time) seen.insert(step.rank);
        return static_cast<int>(seen.size()) == ranks;
    });
}

std::set<int> generations_in(const std::vector<WorkerStep>& steps) {
    std::set<int> generations;
    for (const WorkerStep& step : steps) generations.insert(step.generation);
    return generations;
}

/// A span of time, by now().
struct Span {
    double from = 0;
    double to = 0;
};

/// Lets a process stand still until `condition` holds, and for 20 s at most.
Span pause_until(pid_t pid, const std::function<bool()>& condition) {
    Span span{.from = now()};
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    const bool holds = eventually(Seconds(20), condition);
    span.to = now();
    REQUIRE(::kill(pid, SIGCONT) == 0);
    CHECK(holds);
    return span;
}

/// Lets a process stand still. The time is the fault itself.
Span pause(pid_t pid, std::chrono::milliseconds time) {
    Span span{.from = now()};
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    std::this_thread::sleep_for(time);
    span.to = now();
    REQUIRE(::kill(pid, SIGCONT) == 0);
    return span;
}

e2e::Command job_of(const e2e::Sandbox& sandbox, const std::vector<std::string>& options) {
    std::vector<std::string> argv{(e2e::bin() / "ddprun").string()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"sh", "-c", kWorker});
    return {.argv = argv, .env = {}, .directory = sandbox.path()};
}

/// Ends the workers, and checks that the job has succeeded and was never started again.
void check_undisturbed_end(const e2e::Sandbox& sandbox, std::initializer_list<e2e::Process*> nodes) {
    e2e::write_file(sandbox.path() / "end", "");
    for (e2e::Process* node : nodes) {
        const int code = node->wait(Seconds(30)).exit_code();
        INFO("stderr:\n" << node->err());
        CHECK(code == 0);
    }
    CHECK(generations_in(steps_in(sandbox)) == std::set<int>{1});
}

std::size_t count_in(const std::string& text, std::string_view part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
}

/// Two nodes of a job that has no restart. The second one reaches the daemon through a proxy.
struct TwoNodes {
    explicit TwoNodes(const e2e::Sandbox& where)
        : sandbox(where),
          port(static_cast<std::uint16_t>(e2e::free_port())),
          proxy(port),
          first(sandbox, node(port, "is_host=1")),
          second(sandbox, node(proxy.port(), "is_host=0")) {}

    [[nodiscard]] e2e::Command node(std::uint16_t at, const std::string& conf) const {
        return job_of(sandbox, {"--nnodes", "2", "--max-restarts", "0", "--rdzv-endpoint",
                                fmt::format("127.0.0.1:{}", at), "--rdzv-conf", conf});
    }
    /// Cuts the connection at one end, and waits until the second node has made another one.
    void cut(e2e::Proxy::End end, e2e::Proxy::How how) {
        ++cuts;
        REQUIRE(proxy.cut_end(end, how) == 1);
        const bool again = eventually(Seconds(20), [&] {
            return count_in(second.err(), "connected to the rendezvous daemon again") >= cuts || !second.running();
        });
        INFO("cut " << cuts << "\nfirst:\n" << first.err() << "second:\n" << second.err());
        REQUIRE(again);
        REQUIRE(second.running());
    }

    const e2e::Sandbox& sandbox;
    std::uint16_t port;
    e2e::Proxy proxy;
    e2e::Process first;
    e2e::Process second;
    std::size_t cuts = 0;
};

/// Starts ddprund by itself on a virtual host.
void start_daemon(std::optional<e2e::Process>& daemon, const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, int host,
                  const std::string& hold, const std::string& network = "10.77.0.") {
    const std::vector<std::string> argv{e2e::bin() / "ddprund",
                                        "--bind",
                                        fmt::format("{}{}", network, host),
                                        "--port",
                                        "29400",
                                        "--last-call",
                                        "1",
                                        "--hold",
                                        hold};
    daemon.emplace(sandbox, hosts.on(fmt::format("n{}", host), argv));
    REQUIRE(eventually(Seconds(20), [&] { return daemon->err().find(" serves run ") != std::string::npos; }));
}

/// Four virtual hosts with two workers each, and the daemon on the first. The job goes on with three of them.
struct FourHosts {
    /// With `hold`, in seconds, ddprund is started by itself: ddprun has no option for it.
    explicit FourHosts(const e2e::Sandbox& where, const std::string& hold = "") : sandbox(where), hosts(sandbox, 4) {
        if (!hold.empty()) start_daemon(daemon, sandbox, hosts, 1, hold);
        for (const char* host : {"n1", "n2", "n3", "n4"}) {
            std::vector<std::string> argv =
                job_of(sandbox, {"--nnodes", "3:4", "--nproc_per_node", "2", "--max-restarts", "3", "--rdzv-endpoint",
                                 "n1:29400", "--rdzv-conf", "last_call_timeout=1"})
                    .argv;
            e2e::Command command = hosts.on(host, argv);
            command.env["STUBBORN"] = "n4 1";
            nodes.emplace_back(sandbox, command);
        }
        REQUIRE(all_step_after(0, 8, sandbox));
    }
    /// Separates n4 from all others. The time is the fault itself.
    Span cut_off(std::chrono::milliseconds time) {
        Span span{.from = now()};
        const auto end = std::chrono::steady_clock::now() + time;
        hosts.call({"partition", "n4", "all"});
        std::this_thread::sleep_until(end);
        hosts.call({"heal"});
        span.to = now();
        return span;
    }

    const e2e::Sandbox& sandbox;
    e2e::Hosts hosts;
    std::optional<e2e::Process> daemon;
    std::deque<e2e::Process> nodes;
};

}  // namespace

TEST_CASE("a daemon that stands still makes the workers wait, and they go on when it does", "[e2e]") {
    const e2e::Sandbox sandbox("lease-daemon");
    e2e::Process job(sandbox, job_of(sandbox, {"--nnodes", "2", "--nproc_per_node", "2", "--local-nodes"}));
    REQUIRE(all_step_after(0, 4, sandbox));
    const std::vector<pid_t> daemons = sandbox.pids("ddprund");
    REQUIRE(daemons.size() == 1);

    const Span still = pause_until(daemons.front(), [&] {
        const double seen = now();
        const std::vector<WorkerStep> steps = steps_in(sandbox);
        return std::ranges::none_of(steps, [&](const WorkerStep& step) { return step.time > seen - 1.5; });
    });
    INFO(job.err());
    CHECK(all_step_after(still.to, 4, sandbox));
    check_undisturbed_end(sandbox, {&job});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a daemon that stands still at one address of its name has not ended because another one refuses", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("lease-addresses");
    {
        const e2e::Hosts hosts(sandbox, 2);
        std::optional<e2e::Process> daemon;
        start_daemon(daemon, sandbox, hosts, 1, "30", "fd77::");  // which a node dials first
        hosts.call({"exec", "n2", "--", "sh", "-c", "printf 'fd77::1 both\\n10.77.0.1 both\\n' >> /etc/hosts"});
        e2e::Process node(sandbox, hosts.on("n2", job_of(sandbox, {"--rdzv-endpoint", "both:29400"}).argv));
        REQUIRE(all_step_after(0, 1, sandbox));
        hosts.call({"pause", "n1"});
        const bool waits = eventually(
            Seconds(20), [&] { return node.err().find("the workers of this node wait") != std::string::npos; });
        hosts.call({"resume", "n1"});
        CAPTURE(node.err(), daemon->err());
        CHECK(waits);
        CHECK(all_step_after(now(), 1, sandbox));
        check_undisturbed_end(sandbox, {&node});
        CHECK(daemon->wait(Seconds(30)).exit_code() == 0);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a daemon that stands still for longer than workers wait for it costs a generation, and no restart",
          "[e2e]") {
    const e2e::Sandbox sandbox("lease-hold");
    const std::string port = std::to_string(e2e::free_port());
    {
        e2e::Process daemon(
            sandbox,
            {{(e2e::bin() / "ddprund").string(), "--bind", "127.0.0.1", "--port", port, "--hold", "4"}, {}, {}});
        REQUIRE(eventually(Seconds(20), [&] { return daemon.err().find(" serves run ") != std::string::npos; }));
        const e2e::Command node =
            job_of(sandbox, {"--nnodes", "2", "--max-restarts", "0", "--rdzv-endpoint", "127.0.0.1:" + port});
        e2e::Process first(sandbox, node);
        e2e::Process second(sandbox, node);
        REQUIRE(all_step_after(0, 2, sandbox));
        const Span still = pause_until(daemon.pid(), [&] {
            return std::ranges::all_of(std::array{&first, &second}, [](const e2e::Process* each) {
                return count_in(each->err(), "ending the workers of this node, which goes on looking for it, for ") > 0;
            });
        });
        INFO("first:\n" << first.err() << "second:\n" << second.err() << "daemon:\n" << daemon.err());
        CHECK(all_step_after(still.to, 2, sandbox));
        e2e::write_file(sandbox.path() / "end", "");
        CHECK(first.wait(Seconds(30)).exit_code() == 0);
        CHECK(second.wait(Seconds(30)).exit_code() == 0);
        CHECK(daemon.wait(Seconds(30)).exit_code() == 0);
        CHECK(generations_in(steps_in(sandbox)) == std::set<int>{1, 2});
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job of one node goes on when its agent has stood still", "[e2e]") {
    const e2e::Sandbox sandbox("lease-agent");
    e2e::Process job(sandbox, job_of(sandbox, {"--nproc_per_node", "2"}));
    REQUIRE(all_step_after(0, 2, sandbox));
    std::vector<pid_t> agents = sandbox.pids("--nproc_per_node");
    std::erase_if(agents, [&](pid_t pid) { return ddprun::parent_of(pid) != job.pid(); });
    REQUIRE(agents.size() == 1);

    const Span still = pause(agents.front(), std::chrono::seconds(5));
    CHECK(all_step_after(still.to + 1, 2, sandbox));  // after what the agent does when it continues
    check_undisturbed_end(sandbox, {&job});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node whose end of the connection breaks takes its place again while the daemon has noticed nothing",
          "[e2e]") {
    const e2e::Sandbox sandbox("lease-agent-end");
    {
        TwoNodes job(sandbox);
        REQUIRE(all_step_after(0, 2, sandbox));
        for (int round = 0; round < 10; ++round)
            for (const auto how : {e2e::Proxy::How::kReset, e2e::Proxy::How::kClose})
                job.cut(e2e::Proxy::End::kClient, how);
        CHECK(all_step_after(now(), 2, sandbox));
        check_undisturbed_end(sandbox, {&job.first, &job.second});
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node that counts as lost when the job ends gets the verdict if it is back soon", "[e2e]") {
    const e2e::Sandbox sandbox("lease-verdict");
    {
        TwoNodes job(sandbox);
        REQUIRE(all_step_after(0, 2, sandbox));
        std::vector<pid_t> agents = sandbox.pids("--nnodes");
        std::erase_if(agents, [&](pid_t pid) { return ddprun::parent_of(pid) != job.second.pid(); });
        REQUIRE(agents.size() == 1);
        ::kill(agents.front(), SIGSTOP);  // lost after 3 s, and the job has no restart
        // Not before the verdict, for else the node belongs to the job again.
        const bool over = eventually(Seconds(20), [&] { return count_in(job.first.err(), "1 is left") > 0; });
        ::kill(agents.front(), SIGCONT);
        CHECK(over);
        CHECK(job.second.wait(Seconds(20)).exit_code() == 69);
        CHECK(job.first.wait(Seconds(20)).exit_code() == 69);
        INFO("first:\n" << job.first.err() << "second:\n" << job.second.err());
        CHECK(count_in(job.second.err(), "was lost: no message for 3 s") > 0);
        CHECK(count_in(job.second.err(), "could not be reached") == 0);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node that does not notice that its connection was reset drops it in time", "[e2e]") {
    const e2e::Sandbox sandbox("lease-daemon-end");
    {
        TwoNodes job(sandbox);
        REQUIRE(all_step_after(0, 2, sandbox));
        for (int round = 0; round < 2; ++round) job.cut(e2e::Proxy::End::kServer, e2e::Proxy::How::kReset);
        CHECK(all_step_after(now(), 2, sandbox));
        check_undisturbed_end(sandbox, {&job.first, &job.second});
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the workers of a host that is cut off stop before the others start again, and it comes back", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("lease-cut-off");
    // Its workers end when they have waited for 7 s, and it is taken in without them.
    const auto [seconds, hold] = GENERATE(table<int, std::string>({{6, ""}, {12, "7"}}));
    CAPTURE(seconds, hold);
    {
        FourHosts job(sandbox, hold);
        REQUIRE(
            std::ranges::any_of(sandbox.pids("sh -c"), [](pid_t pid) { return ddprun::ignores_signal(pid, SIGTERM); }));
        const Span cut = job.cut_off(std::chrono::seconds(seconds));
        const auto is_back = [&] {
            const std::vector<WorkerStep> steps = steps_in(sandbox);
            return std::ranges::any_of(
                steps, [&](const WorkerStep& step) { return step.host == "n4" && step.generation > 1; });
        };
        const bool back = eventually(Seconds(10), is_back);
        INFO("n1:\n" << job.nodes[0].err() << "n4:\n" << job.nodes[3].err());
        CHECK(back);
        e2e::write_file(sandbox.path() / "end", "");
        for (e2e::Process& node : job.nodes) CHECK(node.wait(Seconds(30)).exit_code() == 0);

        const std::vector<WorkerStep> steps = steps_in(sandbox);
        std::map<int, double> began;  // by generation
        for (const WorkerStep& step : steps) {
            const auto [first, is_new] = began.try_emplace(step.generation, step.time);
            if (!is_new) first->second = std::min(first->second, step.time);
        }
        int newest = 0;
        std::string overlap;  // the last step of a generation beside a newer one
        for (const WorkerStep& step : steps) {
            newest = std::max(newest, step.generation);
            const auto next = began.upper_bound(step.generation);
            const bool by_clock = next != began.end() && step.time >= next->second;
            if (step.generation == newest && !by_clock) continue;  // as written, and by the clock
            overlap = fmt::format("rank {} on {} made a step of generation {} {:.2f} s after the cut", step.rank,
                                  step.host, step.generation, step.time - cut.from);
        }
        CHECK(overlap == "");
        CHECK(newest >= 2);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job whose daemon's host is cut off for longer than workers wait goes on after it", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("lease-daemon-cut-off");
    {
        const e2e::Hosts hosts(sandbox, 3);
        std::optional<e2e::Process> daemon;
        start_daemon(daemon, sandbox, hosts, 3, "7");
        std::deque<e2e::Process> nodes;
        for (const char* host : {"n1", "n2"})
            nodes.emplace_back(
                sandbox,
                hosts.on(
                    host,
                    job_of(sandbox, {"--nnodes", "2", "--max-restarts", "1", "--rdzv-endpoint", "n3:29400"}).argv));
        REQUIRE(all_step_after(0, 2, sandbox));
        hosts.call({"partition", "n3", "all"});
        const bool waits = eventually(
            Seconds(20), [&] { return daemon->err().find(" was lost: no message for 7 s") != std::string::npos; });
        hosts.call({"heal"});
        const bool again = all_step_after(now(), 2, sandbox);
        INFO("ddprund:\n" << daemon->err() << "n1:\n" << nodes[0].err());
        CHECK(waits);
        CHECK(again);
        e2e::write_file(sandbox.path() / "end", "");
        for (e2e::Process& node : nodes) CHECK(node.wait(Seconds(30)).exit_code() == 0);
        CHECK(generations_in(steps_in(sandbox)) == std::set<int>{1, 2});
        CHECK(daemon->wait(Seconds(30)).exit_code() == 0);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a partition that is shorter than the lease of a host is no failure", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("lease-short-cut");
    {
        FourHosts job(sandbox);
        const Span cut = job.cut_off(std::chrono::seconds(2));
        CHECK(all_step_after(cut.to + 3, 8, sandbox));  // what follows from a loss would have begun
        check_undisturbed_end(sandbox, {&job.nodes[0], &job.nodes[1], &job.nodes[2], &job.nodes[3]});
    }
    CHECK(sandbox.leftovers() == "");
}

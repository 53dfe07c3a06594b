// ddpctl status, drain and undrain of a job of two nodes.

#include <fmt/format.h>
#include <signal.h>

#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "common/text/words.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;
using e2e::eventually;
using e2e::Seconds;

namespace {

/// Prints its generation and rank, and exits with $CODE when there is a file `end`.
constexpr const char* kWorker =
    "echo generation $DDPRUN_GENERATION rank $RANK of $WORLD_SIZE; while [ ! -e end ]; do sleep 0.05; done; exit $CODE";

/// Two ddpruns on this machine: the first hosts the daemon, and the job goes on without the second.
struct TwoNodes {
    explicit TwoNodes(const e2e::Sandbox& where, const std::string& code, std::string begin = "")
        : sandbox(where), worker(std::move(begin) + kWorker), first(sandbox, node(code)) {
        REQUIRE(eventually(Seconds(20), [&] { return status().status.success(); }));
        second.emplace(sandbox, node(code));
        REQUIRE(eventually(Seconds(20), [&] { return prints(*second, "generation 1 rank 1 of 2\n"); }));
        std::istringstream rows(status().out);
        for (std::string rank, name; rows >> rank;)
            if (rank == "1" && rows >> name && name.ends_with("#2")) second_name = name;
        REQUIRE(second_name != "");
        first_name = second_name.substr(0, second_name.size() - 2);
    }
    [[nodiscard]] e2e::Command node(const std::string& code) const {
        return {.argv = {(e2e::bin() / "ddprun").string(), "--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=30",
                         "--rdzv-endpoint", endpoint, "sh", "-c", worker},
                .env = {{"CODE", code}},
                .directory = sandbox.path()};
    }
    [[nodiscard]] e2e::Outcome ddpctl(std::vector<std::string> words) const {
        words.insert(words.begin(), (e2e::bin() / "ddpctl").string());
        words.insert(words.end(), {"--rdzv-endpoint", endpoint});
        return e2e::run(sandbox, {.argv = std::move(words)}, Seconds(30));
    }
    [[nodiscard]] e2e::Outcome status() const { return ddpctl({"status"}); }
    /// Waits until a row of the status contains `name` and ends with `state`.
    [[nodiscard]] bool shows(const std::string& name, const std::string& state) const {
        return eventually(Seconds(20), [&] {
            std::istringstream lines(status().out);
            for (std::string line; std::getline(lines, line);)
                if (line.find("  " + name + "  ") != std::string::npos && line.ends_with(state)) return true;
            return false;
        });
    }
    [[nodiscard]] static bool prints(const e2e::Process& process, const std::string& text) {
        return process.out().find(text) != std::string::npos;
    }

    const e2e::Sandbox& sandbox;
    std::string worker;
    std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    e2e::Process first;
    std::optional<e2e::Process> second;
    std::string first_name;
    std::string second_name;
};

/// Runs a script in a pid namespace of its own, because ddpctl would find the jobs of other tests. Empty: this user may
/// not make one.
std::optional<e2e::Outcome> run_apart(const e2e::Sandbox& sandbox, const std::string& script) {
    const auto run = [&](std::vector<std::string> words) {
        std::vector<std::string> argv{"unshare", "--pid", "--fork", "--mount-proc"};
        argv.insert(argv.end(), words.begin(), words.end());
        return e2e::run(sandbox, {.argv = std::move(argv)});
    };
    if (run({"true"}).status.success()) return run({"sh", "-c", script});
    WARN("SKIPPED: this user may not make a pid namespace");
    return std::nullopt;
}

}  // namespace

TEST_CASE("a node is drained and taken back, and the job goes on meanwhile", "[e2e]") {
    const e2e::Sandbox sandbox("drain");
    {
        TwoNodes job(sandbox, "3");
        CAPTURE(job.second_name);
        const auto before = job.status();
        CHECK_THAT(before.out, Contains("generation 1\nrunning for ") && Contains("with 2 nodes (--nnodes 1:2)") &&
                                   Contains("decisions, the newest last:\n") &&
                                   Contains("generation 1 runs with 2 nodes and 2 workers"));
        CHECK(job.shows(job.first_name, "running"));
        CHECK(job.shows(job.second_name, "running"));

        const auto drain = job.ddpctl({"drain", job.second_name});
        CHECK(drain.status.exit_code() == 0);
        CHECK_THAT(drain.out, StartsWith("node " + job.second_name + " is drained: ") &&
                                  Contains("`ddpctl undrain " + job.second_name +
                                           "` lets it take part again. The job's "
                                           "ddprund runs on this host"));
        CHECK(drain.err == "");
        CHECK(eventually(Seconds(20), [&] { return job.prints(job.first, "generation 2 rank 0 of 1\n"); }));
        CHECK(job.shows(job.second_name, "set aside: an operator has drained it"));
        CHECK(job.shows(job.first_name, "running"));
        CHECK_THAT(job.status().out, Contains("is drained; stopping generation 1"));
        CHECK(eventually(Seconds(20), [&] {
            return job.second->err().find("takes no part: an operator has drained it. `ddpctl undrain ") !=
                   std::string::npos;
        }));

        const auto undrain = job.ddpctl({"undrain", job.second_name});
        CHECK(undrain.status.exit_code() == 0);
        CHECK(undrain.out == "node " + job.second_name + " may take part again\n");
        CHECK(eventually(Seconds(20), [&] { return job.prints(*job.second, "generation 3 rank 1 of 2\n"); }));
        CHECK(job.shows(job.second_name, "running"));

        const auto waited = job.ddpctl({"drain", job.second_name, "--wait"});
        CHECK(waited.status.exit_code() == 0);
        CHECK_THAT(waited.out, EndsWith("\n" + ddprun::name_node(job.second_name) + " runs no workers\n"));
        CHECK(job.shows(job.second_name, "set aside: an operator has drained it"));
        CHECK(eventually(Seconds(20), [&] { return job.prints(job.first, "generation 4 rank 0 of 1\n"); }));
        e2e::write_file(sandbox.path() / "end", "");
        INFO("first:\n" << job.first.err() << "second:\n" << job.second->err());
        CHECK(job.first.wait(Seconds(30)).exit_code() == 3);
        CHECK(job.second->wait(Seconds(30)).exit_code() == 3);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("an order that cannot be followed is refused with its reason, and the job goes on", "[e2e]") {
    const e2e::Sandbox sandbox("drain-refused");
    {
        TwoNodes job(sandbox, "0");
        const auto check_refused = [&](const std::vector<std::string>& order, const std::string& reason) {
            const auto refused = job.ddpctl(order);
            CHECK(refused.status.exit_code() == 2);
            CHECK(refused.out == "");
            CHECK_THAT(refused.err, StartsWith("ddpctl: " + reason));
        };
        check_refused({"drain", "nosuch\x1b[2J"}, "this job has no node 'nosuch\\x1b[2J'. Its nodes: ");
        check_refused({"undrain", "nosuch"}, "this job has no node 'nosuch'. Its nodes: ");
        check_refused({"undrain", job.second_name}, "node " + job.second_name + " is not drained");
        const std::string folder = (sandbox.path() / "records").string();
        const auto dump = job.ddpctl({"dump", "--output", folder});
        CHECK(dump.status.exit_code() == 1);
        CHECK_THAT(dump.out, Contains("\nNOTHING IS KNOWN: no rank has a flight record"));
        CHECK(dump.err == "ddpctl: no rank has a flight record; nothing was written to " + folder + "\n");
        CHECK_THAT(job.status().out, Contains("generation 1\nrunning for "));
        CHECK(job.ddpctl({"drain", job.second_name}).status.exit_code() == 0);
        CHECK(eventually(Seconds(20), [&] { return job.prints(job.first, "generation 2 rank 0 of 1\n"); }));
        check_refused({"drain", job.first_name}, "the job cannot do without node " + job.first_name + ": it needs 1 ");
        CHECK(job.shows(job.first_name, "running"));
        e2e::write_file(sandbox.path() / "end", "");
        CHECK(job.first.wait(Seconds(30)).exit_code() == 0);
        CHECK(job.second->wait(Seconds(30)).exit_code() == 0);
        CHECK(job.first.out() == "generation 1 rank 0 of 2\ngeneration 2 rank 0 of 1\n");
        CHECK(job.second->out() == "generation 1 rank 1 of 2\n");

        const auto over = job.ddpctl({"drain", job.second_name, "--timeout", "0.5"});
        CHECK(over.status.exit_code() == 69);
        CHECK_THAT(over.err, StartsWith("ddpctl: cannot reach the rendezvous daemon at "));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("drain --wait ends with success if the job ends meanwhile", "[e2e]") {
    const e2e::Sandbox sandbox("drain-ended");
    {
        TwoNodes job(sandbox, "0", "trap '' TERM; ");
        e2e::Process drain(sandbox, {.argv = {(e2e::bin() / "ddpctl").string(), "drain", job.second_name, "--wait",
                                              "--rdzv-endpoint", job.endpoint}});
        REQUIRE(eventually(Seconds(20), [&] { return job.prints(drain, " is drained: "); }));
        for (const pid_t daemon : sandbox.pids("ddprund --bind")) ::kill(daemon, SIGKILL);
        CHECK(drain.wait(Seconds(30)).exit_code() == 0);
        CHECK_THAT(drain.out(), EndsWith("\nthe job has ended; if " + ddprun::name_node(job.second_name) +
                                         " still has workers, it stops them when it notices that\n"));
        CHECK(drain.err() == "");
        CHECK(job.first.wait(Seconds(60)).exit_code() == 69);
        CHECK(job.second->wait(Seconds(60)).exit_code() == 69);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a signal to emulated nodes counts the workers that it stops: a drained node has none", "[e2e]") {
    const e2e::Sandbox sandbox("drain-signal");
    const bool all = GENERATE(false, true);
    CAPTURE(all);
    const std::string script = fmt::format(
        "cd {1}; {0}/ddprun --nnodes 1:3 --nproc-per-node 2 --local-nodes "
        "sh -c 'echo up >up-$WORLD_SIZE-$RANK; exec sleep 60' & job=$!; "
        "runs() {{ until [ $(ls | grep -c up-$1-) = $1 ]; do sleep 0.05; done; }}; "
        "runs 6; {2} kill $job; wait $job",
        e2e::bin().string(), sandbox.path().string(), all ? "" : e2e::bin().string() + "/ddpctl drain node1; runs 4;");
    const auto job = run_apart(sandbox, script);
    if (!job) return;
    INFO(job->err);
    CHECK(job->status.exit_code() == 143);
    CHECK_THAT(job->err, Contains(all ? "interrupted by SIGTERM: 6 workers stopped on 3 nodes\n"
                                      : "interrupted by SIGTERM: 4 workers stopped on 2 nodes\n"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job whose endpoint is a name is found once, although a spare runs beside its workers", "[e2e]") {
    const e2e::Sandbox sandbox("ctl-once");
    const std::string script = fmt::format(
        "node='{0}/ddprun --nnodes 1 --rdzv-endpoint localhost:{1}'; "
        "shows() {{ until {0}/ddpctl status --rdzv-endpoint localhost:{1} 2>/dev/null | grep -q \"$1\"; do "
        "sleep 0.05; done; }}; "
        "$node sleep 60 & first=$!; shows ' running$'; $node --spare sleep 60 & shows ' spare$'; "
        "{0}/ddpctl status; code=$?; kill $! $first; wait; exit $code",
        e2e::bin().string(), e2e::free_port());
    const auto found = run_apart(sandbox, script);
    if (!found) return;
    INFO(found->err);
    CHECK(found->status.exit_code() == 0);
    CHECK_THAT(found->out, Contains("generation 1\nrunning for "));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddpctl finds the job of a node without workers", "[e2e]") {
    const e2e::Sandbox sandbox("ctl-finds");
    const std::string script = fmt::format(
        "{0}/ddprun --nnodes 2 --rdzv-endpoint 127.0.0.1:{1} true & "
        "until {0}/ddpctl status --rdzv-endpoint 127.0.0.1:{1} >/dev/null 2>&1; do sleep 0.05; done; "
        "{0}/ddpctl status; code=$?; kill $!; wait; exit $code",
        e2e::bin().string(), e2e::free_port());
    const auto found = run_apart(sandbox, script);
    if (!found) return;
    INFO(found->err);
    CHECK(found->status.exit_code() == 0);
    CHECK_THAT(found->out, Contains("waiting for nodes for ") && Contains("1 of 2"));
    CHECK(sandbox.leftovers() == "");
}

// ddprun --hosts on two virtual hosts, with a program in the place of ssh. Skipped where the tools for virtual hosts
// are absent.

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"

namespace {

using Catch::Contains;
using e2e::Seconds;
using Words = std::vector<std::string>;

/// A program like ssh that reaches the virtual hosts.
std::string make_ssh(const e2e::Sandbox& sandbox) {
    const auto path = sandbox.path() / "ssh";
    e2e::write_file(path, "#!/bin/sh\n[ \"$1\" = -q ] || exit 255\nshift\nhost=$1; shift\nexec " + e2e::Hosts::tool() +
                              " exec \"$host\" -- sh -c \"$*\"\n");
    REQUIRE(::chmod(path.c_str(), 0755) == 0);
    return path.string() + " -q";
}

e2e::Command line(const e2e::Sandbox& sandbox, const std::string& hosts, const Words& options,
                  const std::string& script) {
    Words argv{(e2e::bin() / "ddprun").string(), "--hosts", hosts, "--ssh", make_ssh(sandbox)};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"sh", "-c", script});
    return {.argv = argv, .env = {{"OF_THE_USER", "it's mine"}}, .directory = sandbox.path()};
}

std::multiset<std::string> sorted_lines(const std::string& text) {
    std::multiset<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

constexpr const char* kWaitAfterLine = "echo started; exec sleep 1000";

/// Returns how many workers of kWaitAfterLine run, and agents and guards of their nodes.
auto processes_of_job(const e2e::Sandbox& sandbox) {
    const auto processes = sandbox.processes();
    return std::ranges::count_if(processes, [](const std::string& process) {
        return process.ends_with(": sleep 1000") || process.find("--as-ssh-node") != std::string::npos ||
               process.find("ddprun-guard") != std::string::npos;
    });
}

bool both_started(e2e::Process& job) { return job.out() == "started\nstarted\n"; }

}  // namespace

TEST_CASE("ddprun --hosts starts one world on all hosts, with the directory and variables of the user", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-world");
    {
        const e2e::Hosts hosts(sandbox, 2);
        const auto outcome = e2e::run(
            sandbox, line(sandbox, "n1,n2:2", {}, "echo world $WORLD_SIZE on $(hostname) in $PWD, $OF_THE_USER"),
            Seconds(60));
        CAPTURE(outcome.err);
        CHECK(outcome.status.exit_code() == 0);
        const std::string rest = " in " + sandbox.path().string() + ", it's mine";
        const std::string first = "world 3 on n1" + rest;
        const std::string second = "world 3 on n2" + rest;
        CHECK(sorted_lines(outcome.out) == std::multiset<std::string>{first, second, second});
        const auto failed =
            e2e::run(sandbox, line(sandbox, "n1,n2", {}, "[ $RANK = 0 ] || exit 7; sleep 1000"), Seconds(60));
        CAPTURE(failed.err);
        CHECK(failed.status.exit_code() == 7);
        const auto spare = e2e::run(sandbox, line(sandbox, "n1,n2", {"--nnodes", "1", "--spare"}, "true"), Seconds(60));
        CAPTURE(spare.err);
        CHECK(spare.status.exit_code() == 0);  // although the ddprun of the other host ends with 94
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun --hosts names a host that cannot be reached, and leaves nothing on the others", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-unreachable");
    {
        const e2e::Hosts hosts(sandbox, 2);
        const auto outcome = e2e::run(sandbox, line(sandbox, "n1,n7,n2", {}, kWaitAfterLine), Seconds(60));
        CAPTURE(outcome.out, outcome.err);
        CHECK(outcome.status.exit_code() == 69);
        CHECK(outcome.out == "");
        CHECK_THAT(outcome.err, Contains("ddprun was not started on n7") && Contains("exited with code 255"));
        const auto spare =
            e2e::run(sandbox, line(sandbox, "n1,n7,n2", {"--nnodes", "2:3"}, "echo world $WORLD_SIZE"), Seconds(90));
        CAPTURE(spare.err);
        CHECK(sorted_lines(spare.out) == std::multiset<std::string>{"world 2", "world 2"});
        CHECK(spare.status.exit_code() == 0);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a signal to ddprun --hosts ends the job on all hosts", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-signal");
    {
        const e2e::Hosts hosts(sandbox, 2);
        e2e::Process job(sandbox, line(sandbox, "n1,n2", {}, kWaitAfterLine));
        REQUIRE(e2e::eventually(Seconds(60), [&] { return both_started(job); }));
        job.signal(SIGTERM);
        const auto status = job.wait(Seconds(60));
        CAPTURE(job.err());
        CHECK(status.exit_code() == 143);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the job ends on all hosts when ddprun --hosts is killed, and no command line has the key", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-killed");
    const e2e::Hosts hosts(sandbox, 2);
    const std::string key(64, 'a');
    e2e::Command command = line(sandbox, "n1,n2", {}, kWaitAfterLine);
    command.env["DDPRUN_JOB_KEY"] = key;  // which the hosts get
    e2e::Process job(sandbox, command);
    REQUIRE(e2e::eventually(Seconds(60), [&] { return both_started(job); }));
    for (const std::string& process : sandbox.processes()) CHECK_THAT(process, !Contains(key));
    REQUIRE(processes_of_job(sandbox) >= 4);
    job.signal(SIGKILL);
    (void)job.wait(Seconds(10));
    CHECK(e2e::eventually(Seconds(60), [&] { return processes_of_job(sandbox) == 0; }));
}

TEST_CASE("ddprun --hosts needs its file of hosts on this host alone", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-file");
    {
        const e2e::Hosts hosts(sandbox, 2);
        const std::string file = (sandbox.path() / "nodes").string();
        e2e::write_file(file, "n1\nn2 slots=2\n");
        e2e::Command command = line(sandbox, file, {}, "echo world $WORLD_SIZE");
        const auto ssh = sandbox.path() / "ssh";  // it is gone when a host could look
        e2e::write_file(ssh, "#!/bin/sh\nrm -f " + file + e2e::read_file(ssh).substr(std::string("#!/bin/sh").size()));
        const auto outcome = e2e::run(sandbox, command, Seconds(60));
        CAPTURE(outcome.err);
        CHECK(sorted_lines(outcome.out) == std::multiset<std::string>{"world 3", "world 3", "world 3"});
        CHECK(outcome.status.exit_code() == 0);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("ddprun --hosts ends the others, with its code, if a ddprun ends before it has joined", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("ssh-ended");
    {
        const e2e::Hosts hosts(sandbox, 1);
        const e2e::Command command = line(sandbox, "n1,n2", {}, "true");
        const auto ssh = sandbox.path() / "ssh";  // the program is missing on n2
        e2e::write_file(ssh,
                        "#!/bin/sh\n[ \"$2\" = n2 ] && printf '\\001ddprun started\\n\\001ddprun ended 127\\n' "
                        "&& exit 127" +
                            e2e::read_file(ssh).substr(std::string("#!/bin/sh").size()));
        const auto outcome = e2e::run(sandbox, command, Seconds(60));
        CAPTURE(outcome.err);
        CHECK(outcome.status.exit_code() == 127);
    }
    CHECK(sandbox.leftovers() == "");
}

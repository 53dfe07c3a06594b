// Every error that a user can cause: one message with what failed, where, why and what to do; the documented exit code;
// no process or file left behind.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "common/exit_codes.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

namespace exit_code = ddprun::exit_code;

std::string ddprun_path() { return (e2e::bin() / "ddprun").string(); }

struct BadInput {
    std::string name;
    std::vector<std::string> arguments;
    int code;
    std::vector<std::string> says;
};

void check(const e2e::Sandbox& sandbox, const BadInput& bad) {
    std::vector<std::string> argv{ddprun_path()};
    argv.insert(argv.end(), bad.arguments.begin(), bad.arguments.end());
    const auto outcome = e2e::run(sandbox, {.argv = argv, .directory = sandbox.path()}, e2e::Seconds(60));
    CAPTURE(bad.name, outcome.err, outcome.out);
    CHECK(outcome.status.exit_code() == bad.code);
    for (const std::string& text : bad.says) CHECK_THAT(outcome.err, Catch::Contains(text));
    CHECK(sandbox.leftovers() == "");
}

}  // namespace

TEST_CASE("usage errors name the option, the value, the reason and the remedy in one line", "[e2e]") {
    const e2e::Sandbox sandbox("usage");
    const auto bad = GENERATE(values<BadInput>({
        {"MIN > MAX", {"--nnodes", "3:2", "true"}, exit_code::kUsage, {"--nnodes", "3:2", "MIN"}},
        {"two colons", {"--nnodes", "1:2:3", "true"}, exit_code::kUsage, {"--nnodes", "1:2:3"}},
        {"no nodes", {"--nnodes", "0", "true"}, exit_code::kUsage, {"--nnodes", "0"}},
        {"nproc 0", {"--nproc-per-node", "0", "true"}, exit_code::kUsage, {"--nproc-per-node", "0"}},
        {"nproc negative", {"--nproc_per_node=-2", "true"}, exit_code::kUsage, {"--nproc", "-2"}},
        {"nproc a word", {"--nproc-per-node", "many", "true"}, exit_code::kUsage, {"--nproc-per-node", "many", "auto"}},
        {"negative restarts", {"--max-restarts", "-1", "true"}, exit_code::kUsage, {"--max-restarts", "-1"}},
        {"unknown option", {"--nnodez", "2", "true"}, exit_code::kUsage, {"--nnodez"}},
        {"abbreviation", {"--nn", "2", "true"}, exit_code::kUsage, {"--nn"}},
        {"no program", {"--nnodes", "1"}, exit_code::kUsage, {"program"}},
        {"bad endpoint", {"--rdzv-endpoint", "n1:99999", "true"}, exit_code::kUsage, {"n1:99999", "port"}},
        {"unknown rdzv-conf key",
         {"--rdzv-conf", "jion_timeout=3", "true"},
         exit_code::kUsage,
         {"jion_timeout", "join_timeout"}},
        {"unknown program", {"--standalone", "no-such-program"}, exit_code::kProgramNotFound, {"no-such-program"}},
        {"not executable", {"--standalone", "/etc/passwd"}, exit_code::kCannotExecute, {"/etc/passwd"}},
        {"rank beyond the nodes",
         {"--nnodes", "2", "--node-rank", "2", "true"},
         exit_code::kUsage,
         {"--node-rank 2", "0 to 1"}},
        {"log folder in /proc", {"--log-dir", "/proc/no/logs", "true"}, exit_code::kUsage, {"/proc/no", "--log-dir"}},
        {"log folder a file",
         {"--log-dir", "/etc/passwd", "-r", "3", "true"},
         exit_code::kUsage,
         {"/etc/passwd", "a file"}},
        {"log folder below a file",
         {"--log-dir", "/etc/passwd/logs", "--nnodes", "2", "--local-nodes", "true"},
         exit_code::kUsage,
         {"/etc/passwd/logs", "Not a directory"}},
        {"address of another machine",
         {"--local-addr", "192.0.2.9", "true"},
         exit_code::kUsage,
         {"--local-addr 192.0.2.9", "not an address of this machine"}},
        {"missing script", {"--standalone", "no_such_script.py"}, exit_code::kProgramNotFound, {"no_such_script.py"}},
    }));
    check(sandbox, bad);
    const auto outcome = [&] {
        std::vector<std::string> argv{ddprun_path()};
        argv.insert(argv.end(), bad.arguments.begin(), bad.arguments.end());
        return e2e::run(sandbox, {.argv = argv});
    }();
    CAPTURE(bad.name, outcome.err);
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK(outcome.out == "");
}

TEST_CASE("a bad environment variable is named", "[e2e]") {
    const e2e::Sandbox sandbox("pet");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_path(), "true"}, .env = {{"PET_STANDALONE", "perhaps"}}});
    CHECK(outcome.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(outcome.err, Catch::Contains("PET_STANDALONE") && Catch::Contains("perhaps"));
}

TEST_CASE("an endpoint that does not answer is reported with the number of tries", "[e2e]") {
    const e2e::Sandbox sandbox("unreachable");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    // is_host=0: another node is to start the daemon.
    check(sandbox, {"no listener",
                    {"--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-conf", "is_host=0,read_timeout=1", "true"},
                    exit_code::kInfrastructure,
                    {endpoint, "tries", "refused"}});
}

TEST_CASE("a port that something else holds is reported with its holder", "[e2e]") {
    const e2e::Sandbox sandbox("port-in-use");
    const ddprun::UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(holder.get(), 8) == 0);
    REQUIRE(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    const std::string endpoint = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
    check(sandbox, {"port in use",
                    {"--nnodes", "2", "--rdzv-endpoint", endpoint, "true"},
                    exit_code::kInfrastructure,
                    {endpoint, fmt::format("pid {}", ::getpid())}});
}

TEST_CASE("nodes that disagree about the job are refused with both sides", "[e2e]") {
    const e2e::Sandbox sandbox("disagree");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    e2e::Process first(sandbox, {.argv = {ddprun_path(), "--nnodes", "2", "--rdzv-endpoint", endpoint, "true"}});
    REQUIRE(e2e::eventually(e2e::Seconds(20), [&] { return first.err().find("1 of 2") != std::string::npos; }));
    const auto second = e2e::run(
        sandbox, {.argv = {ddprun_path(), "--nnodes", "3", "--rdzv-endpoint", endpoint, "true"}}, e2e::Seconds(30));
    CAPTURE(first.err(), second.err);
    CHECK(second.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(second.err, Catch::Contains("--nnodes 2") && Catch::Contains("3"));
    first.signal(SIGTERM);
    CHECK(first.wait(e2e::Seconds(20)).exit_code() == 128 + SIGTERM);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the trainer refuses data that it cannot read, with the code that allows no restart", "[e2e]") {
    const e2e::Sandbox sandbox("trainer");
    const std::string train = (e2e::bin() / "train").string();
    if (!std::filesystem::exists(train)) {
        WARN("SKIPPED: the example trainer was not built");
        return;
    }
    e2e::write_file(sandbox.path() / "empty.txt", "");
    const auto bad = GENERATE(values<BadInput>({
        {"missing", {"--data", "no-such-file.txt"}, exit_code::kDoNotRequeue, {"no-such-file.txt", "No such file"}},
        {"a directory", {"--data", "/etc"}, exit_code::kDoNotRequeue, {"/etc"}},
        {"a device", {"--data", "/dev/zero"}, exit_code::kDoNotRequeue, {"/dev/zero", "not a regular file", "--data"}},
        {"empty", {"--data", "empty.txt"}, exit_code::kDoNotRequeue, {"0 bytes", "--data"}},
        {"an option", {"--stepz", "3"}, exit_code::kDoNotRequeue, {"train: --stepz: no such option. See train --help"}},
    }));
    BadInput full = bad;
    full.arguments.insert(full.arguments.begin(), {"--standalone", "--nproc-per-node", "2", train});
    check(sandbox, full);
}

TEST_CASE("the trainer runs with a limit on its address space", "[e2e]") {
    const e2e::Sandbox sandbox("address-space");
    if (!std::filesystem::exists(e2e::bin() / "train")) {
        WARN("SKIPPED: the example trainer was not built");
        return;
    }
    const std::string line =
        fmt::format("ulimit -v 8000000; exec {} --nproc-per-node 2 train --steps 2", (e2e::bin() / "ddprun").string());
    const auto outcome = e2e::run(sandbox, {.argv = {"sh", "-c", line}}, e2e::Seconds(60));
    INFO(outcome.err);
    CHECK(outcome.status.success());
}

TEST_CASE("the trainer reports a result that stdout does not accept as lost", "[e2e]") {
    const e2e::Sandbox sandbox("trainer-stdout");
    const std::string train = (e2e::bin() / "train").string();
    if (!std::filesystem::exists(train)) {
        WARN("SKIPPED: the example trainer was not built");
        return;
    }
    for (const std::string options : {"--help", "--steps 1 --global-batch 8 --progress none"}) {
        const auto outcome =
            e2e::run(sandbox, {.argv = {"sh", "-c", train + " " + options + " >/dev/full"}}, e2e::Seconds(60));
        CAPTURE(options);
        CHECK(outcome.status.exit_code() == 1);
        CHECK(outcome.err ==
              "train: cannot write to stdout: No space left on device. The result is lost. Redirect stdout to where "
              "there is room\n");
    }
}

TEST_CASE("no room for a checkpoint ends the job with the file, the reason and what to do", "[e2e]") {
    if (::geteuid() != 0) {
        WARN("SKIPPED: needs root to mount a small file system");
        return;
    }
    const e2e::Sandbox sandbox("no-room");
    // A mount namespace of its own: the small file system is gone with the job.
    const std::string job = fmt::format(
        "mount -t tmpfs -o size=256k none small && {} --standalone --nproc-per-node 2 {} --steps 3 --global-batch 8 "
        "--checkpoint-every 1 --checkpoint-dir small/checkpoints --progress none",
        ddprun_path(), (e2e::bin() / "train").string());
    std::filesystem::create_directory(sandbox.path() / "small");
    const auto outcome = e2e::run(
        sandbox, {.argv = {"unshare", "--mount", "sh", "-c", job}, .directory = sandbox.path()}, e2e::Seconds(60));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == 1);
    CHECK_THAT(outcome.err, Catch::Contains("No space left on device") && Catch::Contains("small/checkpoints"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a checkpoint of another run ends the job with one report", "[e2e]") {
    const e2e::Sandbox sandbox("other-checkpoint");
    const std::string train = (e2e::bin() / "train").string();
    if (!std::filesystem::exists(train)) {
        WARN("SKIPPED: the example trainer was not built");
        return;
    }
    const auto job = [&](const std::string& seed) {
        return e2e::run(sandbox,
                        {.argv = {ddprun_path(), "--standalone", "--nproc-per-node", "2", train, "--steps", "1",
                                  "--global-batch", "8", "--hidden1", "64", "--hidden2", "64", "--seed", seed,
                                  "--checkpoint-dir", "checkpoints", "--progress", "none"},
                         .directory = sandbox.path()},
                        e2e::Seconds(60));
    };
    const auto first = job("1");
    CAPTURE(first.err);
    REQUIRE(first.status.exit_code() == 0);
    for (int i = 0; i < 7; ++i) {  // the silent rank must not seem to fail in any job: signs_of_failure_test has why
        const auto second = job("2");
        CAPTURE(second.err);
        CHECK(second.status.exit_code() == exit_code::kDoNotRequeue);
        CHECK_THAT(second.err, Catch::Contains("train: the checkpoints in checkpoints are of a run with --seed 1") &&
                                   Catch::Contains("rank 0 on"));
        CHECK_THAT(second.err, !Catch::Contains(") waited for it"));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a rank that calls ddp::fail() is the one that is reported, with its text and exit code", "[e2e]") {
    const e2e::Sandbox sandbox("fail");
    const std::string train = (e2e::bin() / "train").string();
    if (!std::filesystem::exists(train)) {
        WARN("SKIPPED: the example trainer was not built");
        return;
    }
    const std::string nodes = GENERATE("1", "2");
    const auto outcome = e2e::run(
        sandbox,
        {.argv = {ddprun_path(), "--local-nodes", "--nnodes", nodes, "--nproc-per-node", "2", train, "--steps", "20",
                  "--global-batch", "8", "--hidden1", "64", "--hidden2", "64", "--lr", "1e30", "--progress", "none"},
         .directory = sandbox.path()},
        e2e::Seconds(60));
    CAPTURE(outcome.err);
    CHECK(outcome.status.exit_code() == exit_code::kDoNotRequeue);
    // On a busy machine the box may say DEAD where it else says ABORTED with the text.
    CHECK_THAT(outcome.err, Catch::Contains("\nrank 0 on ") && Catch::Contains(" exited with code 93\n") &&
                                Catch::Contains("\n    | train: the loss is not finite ("));
    CHECK(sandbox.leftovers() == "");
}

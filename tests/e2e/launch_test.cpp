// The environment of a program, and what ddprun does with its output and exit code.

#include <fmt/format.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

std::string ddprun_program() { return (e2e::bin() / "ddprun").string(); }

std::set<std::string> lines_of(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

std::string script(const e2e::Sandbox& sandbox, const std::string& name, const std::string& text) {
    const auto path = sandbox.path() / name;
    e2e::write_file(path, text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
}

/// Keeps a process as a zombie that its parent cannot reap, like a worker that takes long to die, until this object is
/// destroyed: the end of a traced process goes to its tracer first.
class SlowDeath {
public:
    explicit SlowDeath(pid_t pid) : pid_(pid), traced_(::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0) {}
    ~SlowDeath() {
        if (!traced_) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, __WALL);
    }
    SlowDeath(const SlowDeath&) = delete;
    SlowDeath& operator=(const SlowDeath&) = delete;

    /// Returns whether this user may trace the process.
    [[nodiscard]] bool possible() const { return traced_; }

private:
    pid_t pid_;
    bool traced_;
};

}  // namespace

TEST_CASE("every worker finds the environment that torchrun would give it", "[e2e]") {
    const e2e::Sandbox sandbox("environment");
    const std::string program = script(sandbox, "show", R"(#!/bin/sh
echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE" \
     "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE" \
     "$MASTER_ADDR $OMP_NUM_THREADS"
case $MASTER_PORT in [1-9]*) ;; *) exit 3;; esac
)");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "--nnodes=2", "--nproc_per_node=2", "--local-nodes", "--rdzv_id",
                                    "job7", "--max_restarts", "4", "--role", "trainer", program},
                           .env = {{"OMP_NUM_THREADS", "3"}}});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == std::set<std::string>{"0 0 4 2 0 2 trainer 0 4 0 4 job7 True 127.0.0.1 3",
                                                         "1 1 4 2 0 2 trainer 1 4 0 4 job7 True 127.0.0.1 3",
                                                         "2 0 4 2 1 2 trainer 2 4 0 4 job7 True 127.0.0.1 3",
                                                         "3 1 4 2 1 2 trainer 3 4 0 4 job7 True 127.0.0.1 3"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers see --master-addr and --master-port as they were named", "[e2e]") {
    const e2e::Sandbox sandbox("named-master");
    const std::string port = std::to_string(e2e::free_port());
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--master-addr", "localhost", "--master-port",
                                                     port, "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT"}});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out == "localhost " + port + "\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the address of --local-addr is that of the store, and of the workers for other nodes", "[e2e]") {
    const e2e::Sandbox sandbox("local-addr");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "--nnodes", "2", "--local-nodes", "--local-addr", "127.0.0.2",
                                    "sh", "-c", "echo $RANK $MASTER_ADDR $DDPRUN_LOCAL_ADDR"}});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == std::set<std::string>{"0 127.0.0.2 127.0.0.2", "1 127.0.0.2 127.0.0.2"});
    CHECK(sandbox.leftovers() == "");
}

// Linux divides a core between sessions first: docs/design/014.
TEST_CASE("workers of all emulated nodes share one session, which is not that of ddprun's caller", "[e2e]") {
    const e2e::Sandbox sandbox("one-session");
    const std::string program = script(sandbox, "session", "#!/bin/sh\ncut -d' ' -f6 /proc/$$/stat\n");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "--nnodes=2", "--nproc_per_node=2", "--local-nodes", program}});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    const auto sessions = lines_of(outcome.out);
    REQUIRE(sessions.size() == 1);
    CHECK(*sessions.begin() != std::to_string(::getsid(0)));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("arguments after the program are its own, whatever they look like", "[e2e]") {
    const e2e::Sandbox sandbox("arguments");
    const std::string program = script(sandbox, "show", "#!/bin/sh\nprintf '%s|' \"$@\"\n");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--standalone", program, "--nnodes", "7", "-h",
                                                     "a b", "", "--lr=${local_rank}", "--", "$HOME", "--r=16"}});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(outcome.out.starts_with("--nnodes|7|-h|a b||--lr=0|--|$HOME|--r=16|"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the console shows whole lines, unprefixed by default and labelled on request", "[e2e]") {
    const e2e::Sandbox sandbox("console");
    const std::string program = script(sandbox, "talk", R"(#!/bin/sh
i=0
while [ $i -lt 200 ]; do printf 'rank %s ' $RANK; printf 'says %s\n' $i; i=$((i+1)); done
printf 'no newline at the end from %s' $RANK
)");
    const bool label = GENERATE(false, true);
    std::vector<std::string> argv{ddprun_program(), "--standalone", "--nproc-per-node", "3", program};
    if (label) argv.insert(argv.begin() + 1, "--label");
    const auto outcome = e2e::run(sandbox, {.argv = argv});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    const auto lines = lines_of(outcome.out);
    CHECK(lines.size() == 3 * 201);
    for (int rank = 0; rank < 3; ++rank) {
        const std::string text = fmt::format("rank {} says 137", rank);
        std::size_t found = 0;
        for (const auto& line : lines) {
            if (label ? line.ends_with(fmt::format(":{}] {}", rank, text)) && line.starts_with("[") : line == text)
                ++found;
        }
        CHECK(found == 1);
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job whose output goes to /dev/null runs as well", "[e2e]") {
    const e2e::Sandbox sandbox("dev-null");
    const std::string redirection = GENERATE(as<std::string>(), ">/dev/null", "2>/dev/null", ">/dev/null 2>&1");
    const std::string line =
        fmt::format("{} --nproc-per-node 2 touch \"$0\".{} {}", ddprun_program(), "done", redirection);
    CAPTURE(line);
    const auto outcome =
        e2e::run(sandbox, {.argv = {"sh", "-c", line, (sandbox.path() / "job").string()}}, e2e::Seconds(30));
    CHECK(outcome.status.exit_code() == 0);
    CHECK(std::filesystem::exists(sandbox.path() / "job.done"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a log directory keeps each rank's output, and --tee shows it as well", "[e2e]") {
    const e2e::Sandbox sandbox("logs");
    const std::string program = script(sandbox, "talk", "#!/bin/sh\necho out $RANK\necho err $RANK >&2\n");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "--standalone", "--nproc-per-node", "2", "--rdzv-id", "job1",
                                    "--log-dir", (sandbox.path() / "logs").string(), "--tee", "3", program}});
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    const auto folder = sandbox.path() / "logs/job1/gen-1";
    CHECK(e2e::read_file(folder / "rank-0.out") == "out 0\n");
    CHECK(e2e::read_file(folder / "rank-1.out") == "out 1\n");
    CHECK(e2e::read_file(folder / "rank-1.err") == "err 1\n");
    CHECK_THAT(outcome.out, Catch::Contains("[default1]:out 1"));
    CHECK_THAT(outcome.err, Catch::Contains("[default0]:err 0"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the id of a job may be any text: workers get it as it is, and its log folder a safe name", "[e2e]") {
    const e2e::Sandbox sandbox("run-id");
    const std::string program = script(sandbox, "show", "#!/bin/sh\necho \"$RANK <$TORCHELASTIC_RUN_ID>\"\n");
    const std::string id = "--team/../job 7: " + std::string(300, 'x');
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const std::vector<std::string> argv{
        ddprun_program(), "--nnodes", "2",    "--rdzv-endpoint", endpoint, "--rdzv-id", id, "--tee", "3",
        "--log-dir",      "logs",     program};
    e2e::Process first(sandbox, {.argv = argv, .directory = sandbox.path()});
    e2e::Process second(sandbox, {.argv = argv, .directory = sandbox.path()});
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 0);
    CHECK(second.wait(e2e::Seconds(60)).exit_code() == 0);
    INFO(first.err() << second.err());
    CHECK_THAT(first.out() + second.out(), Catch::Contains("0 <" + id + ">\n") && Catch::Contains("1 <" + id + ">\n"));
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(sandbox.path() / "logs"))
        folders.push_back(entry.path());
    REQUIRE(folders.size() == 1);
    CHECK_THAT(folders[0].filename().string(), Catch::StartsWith("--team_.._job_7__xxx"));
    CHECK(e2e::read_file(folders[0] / "gen-1/rank-1.out") == "1 <" + id + ">\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("options of torchrun without effect are silent unless asked, and a mistyped variable is not", "[e2e]") {
    const e2e::Sandbox sandbox("notes");
    std::vector<std::string> argv{ddprun_program(),
                                  "--standalone",
                                  "--nnodes",
                                  "1:2",
                                  "--monitor-interval",
                                  "5",
                                  "--start-method",
                                  "fork",
                                  "--rdzv-conf",
                                  "close_timeout=5, rank=0",
                                  "true"};
    const auto silent = e2e::run(sandbox, {.argv = argv});
    CHECK(silent.status.exit_code() == 0);
    CHECK(silent.err == "");
    argv.insert(argv.begin() + 1, "-v");
    CHECK_THAT(e2e::run(sandbox, {.argv = argv, .env = {{"LOGLEVEL", "error"}}}).err,
               Catch::Contains("--monitor-interval has no effect") && Catch::Contains("--start-method has no effect") &&
                   Catch::Contains("--rdzv-conf close_timeout: no effect") && Catch::Contains("no other can join"));
    CHECK(e2e::run(sandbox, {.argv = {ddprun_program(), "true"}, .env = {{"PET_NNODE", "2"}}}).err ==
          "[ddprun] no option reads PET_NNODE. Did you mean PET_NNODES?\n");
}

TEST_CASE("the exit code is the failed worker's, and the message shows its last lines", "[e2e]") {
    const e2e::Sandbox sandbox("exit-code");
    const std::string program = script(sandbox, "fail", R"(#!/bin/sh
[ "$RANK" = 2 ] || exec sleep 1000
echo "cannot find the data" >&2
exit 23
)");
    const auto outcome = e2e::run(
        sandbox, {.argv = {ddprun_program(), "--nnodes", "2", "--nproc-per-node", "2", "--local-nodes", program}},
        e2e::Seconds(30));
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 23);
    CHECK_THAT(outcome.err, Catch::Contains("rank 2") && Catch::Contains("exited with code 23"));
    CHECK_THAT(outcome.err, Catch::Contains("cannot find the data"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a worker that ignores SIGTERM is killed after the grace, with every process that it started", "[e2e]") {
    const e2e::Sandbox sandbox("grace");
    const std::string program = script(sandbox, "stubborn", R"(#!/bin/sh
trap '' TERM INT HUP
setsid sleep 1000 &
(setsid sh -c 'trap "" TERM; sleep 1000; sleep 1000' &)
echo ready
while :; do sleep 1; done
)");
    e2e::Process job(sandbox, {.argv = {ddprun_program(), "--standalone", "--nproc-per-node", "2", "--shutdown-timeout",
                                        "1", program}});
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return job.out().size() >= 12; }));
    job.signal(SIGTERM);
    CHECK(job.wait(e2e::Seconds(30)).exit_code() == 143);
    INFO(job.err());
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("Python scripts run under python3 by default, unbuffered, and as modules", "[e2e]") {
    const e2e::Sandbox sandbox("python");
    e2e::write_file(sandbox.path() / "hello.py", "import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])\n");
    const bool module = GENERATE(false, true);
    std::vector<std::string> argv{ddprun_program(), "--nproc-per-node", "2"};
    if (module)
        argv.insert(argv.end(), {"-m", "hello"});
    else
        argv.push_back("hello.py");
    argv.push_back("--lr");
    const auto outcome = e2e::run(sandbox, {.argv = argv, .directory = sandbox.path()});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 0);
    CHECK(lines_of(outcome.out) == std::set<std::string>{"rank 0 ['--lr']", "rank 1 ['--lr']"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("Python scripts run under the active environment, and the box names it if a module is missing", "[e2e]") {
    const e2e::Sandbox sandbox("interpreter");
    std::filesystem::create_directories(sandbox.path() / "venv/bin");
    const std::string python =
        script(sandbox, "venv/bin/python3", "#!/bin/sh\nIN_VENV=1 exec /usr/bin/python3 \"$@\"\n");
    e2e::write_file(sandbox.path() / "train.py", "import os, no_such_module_x\n");
    e2e::write_file(sandbox.path() / "show.py", "import os\nprint(os.environ.get('IN_VENV'))\n");
    const auto run = [&](std::vector<std::string> words) {
        words.insert(words.begin(), ddprun_program());
        return e2e::run(sandbox, {.argv = words,
                                  .env = {{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", (sandbox.path() / "venv").string()}},
                                  .directory = sandbox.path()});
    };
    const auto shown = run({"-v", "show.py"});
    INFO(shown.err);
    CHECK(shown.out == "1\n");
    CHECK_THAT(shown.err, Catch::Contains("[ddprun] hosting the rendezvous at 127.0.0.1:"));  // of one node, too
    CHECK_THAT(shown.err, Catch::Contains("[ddprun] interpreter of the program: " + python + " (from VIRTUAL_ENV)\n"));
    CHECK(run({"show.py"}).err == "");
    const auto failed = run({"train.py"});
    CHECK(failed.status.exit_code() == 1);
    CHECK_THAT(failed.err, Catch::Contains("No module 'no_such_module_x': on this node the program runs under " +
                                           python + " (from VIRTUAL_ENV). "));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node that joins while the job waits completes it, and a spare that is not needed has a code of its own",
          "[e2e]") {
    const e2e::Sandbox sandbox("spare");
    const std::string program = script(
        sandbox, "meet", "#!/bin/sh\n[ -e go ] || while [ ! -e go ]; do sleep 0.05; done\necho $RANK of $WORLD_SIZE\n");
    const std::string endpoint = fmt::format("127.0.0.1:{}", e2e::free_port());
    const e2e::Command command{
        .argv = {ddprun_program(), "--nnodes", "2", "--rdzv-endpoint", endpoint, "--spare", program},
        .directory = sandbox.path()};
    e2e::Process first(sandbox, command);
    e2e::Process second(sandbox, command);
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] {
        return (first.err() + second.err()).find("this is node 1 of 2") != std::string::npos;
    }));
    e2e::Process third(sandbox, command);
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return third.err().find("spare") != std::string::npos; }));
    e2e::write_file(sandbox.path() / "go", "");
    CHECK(first.wait(e2e::Seconds(30)).exit_code() == 0);
    CHECK(second.wait(e2e::Seconds(30)).exit_code() == 0);
    CHECK(third.wait(e2e::Seconds(30)).exit_code() == 94);
    CHECK_THAT(third.err(), Catch::Contains("the job succeeded without this node"));
    CHECK(lines_of(first.out() + second.out() + third.out()) == std::set<std::string>{"0 of 2", "1 of 2"});
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that is started again at once after a SIGKILL runs when the daemon of the first has ended", "[e2e]") {
    const e2e::Sandbox sandbox("at-once");
    const std::string port = std::to_string(e2e::free_port());
    const auto command = [&](std::vector<std::string> program) {
        std::vector<std::string> argv{ddprun_program(), "--master-port", port};
        argv.insert(argv.end(), program.begin(), program.end());
        return e2e::Command{.argv = argv, .directory = sandbox.path()};
    };
    e2e::Process first(sandbox, command({"sh", "-c", "echo $$; exec sleep 60"}));
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return first.out().ends_with('\n'); }));
    std::optional<SlowDeath> worker;
    SECTION("and its worker dies at once") {}
    SECTION("although its worker takes long to die") {
        worker.emplace(std::stoi(first.out()));
        if (!worker->possible()) {
            WARN("SKIPPED: this user may not trace processes");
            return;
        }
    }
    first.signal(SIGKILL);
    const auto second = e2e::run(sandbox, command({"echo", "ran"}), e2e::Seconds(60));
    INFO(second.err);
    CHECK(second.status.success());
    CHECK(second.out == "ran\n");
    worker.reset();
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node whose guard is killed is lost, and its worker is not the culprit", "[e2e]") {
    const e2e::Sandbox sandbox("guard-of-two");
    const std::string port = std::to_string(e2e::free_port());
    const std::string fence = GENERATE("auto", "guard");
    const e2e::Command node{.argv = {ddprun_program(), "--fence", fence, "--nnodes", "2", "--master-port", port, "sh",
                                     "-c", "echo up; sleep 60"},
                            .directory = sandbox.path()};
    e2e::Process first(sandbox, node);
    e2e::Process second(sandbox, node);
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return first.out() == "up\n" && second.out() == "up\n"; }));
    second.signal(SIGKILL);
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 69);
    CAPTURE(first.err());
    CHECK_THAT(first.err(), Catch::Contains("was lost: connection closed") && !Catch::Contains("killed by SIGKILL"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a second job on the port of another is refused at once, and its program does not run", "[e2e]") {
    const e2e::Sandbox sandbox("second-job");
    const std::string wait = script(sandbox, "wait", "#!/bin/sh\necho up\nwhile [ ! -e go ]; do sleep 0.05; done\n");
    const std::string port = std::to_string(e2e::free_port());
    const auto command = [&](std::vector<std::string> program) {
        std::vector<std::string> argv{ddprun_program(), "--master-port", port};
        argv.insert(argv.end(), program.begin(), program.end());
        return e2e::Command{.argv = argv, .directory = sandbox.path()};
    };
    e2e::Process first(sandbox, command({wait}));
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return first.out() == "up\n"; }));
    const auto other = e2e::run(sandbox, command({"touch", "other.ran"}), e2e::Seconds(30));
    CHECK(other.status.exit_code() == 2);
    CHECK_THAT(other.err, Catch::Contains("this node was started with 'touch other.ran'") &&
                              Catch::Contains("another --rdzv-endpoint or --master-port"));
    const auto again = e2e::run(sandbox, command({wait}), e2e::Seconds(30));
    CHECK(again.status.exit_code() == 2);
    CHECK_THAT(again.err, Catch::Contains("which has its node already") && Catch::Contains("--spare"));
    e2e::write_file(sandbox.path() / "go", "");
    CHECK(first.wait(e2e::Seconds(30)).exit_code() == 0);
    CHECK(first.out() == "up\n");
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "other.ran"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("workers do not inherit the password for etcd, whether their job uses etcd or not", "[e2e]") {
    const e2e::Sandbox sandbox("etcd-password");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "sh", "-c", "echo \"password ${DDPRUN_ETCD_PASSWORD-none}\""},
                           .env = {{"DDPRUN_ETCD_PASSWORD", "secret"}}});
    CHECK(outcome.out == "password none\n");
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a job that meets a killed one on its port never runs as its restart", "[e2e]") {
    const e2e::Sandbox sandbox("killed-job");
    const std::string port = std::to_string(e2e::free_port());
    const auto command = [&](const std::string& line) {
        return e2e::Command{.argv = {ddprun_program(), "--rdzv-id", "k", "--master-port", port, "sh", "-c", line}};
    };
    e2e::Process first(sandbox, command("echo up; exec sleep 1000"));
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] { return first.out() == "up\n"; }));
    first.signal(SIGKILL);
    bool refused = false;
    std::string out;
    REQUIRE(e2e::eventually(e2e::Seconds(30), [&] {  // the user starts it again until it runs
        const auto next = e2e::run(sandbox, command("echo restart $TORCHELASTIC_RESTART_COUNT"), e2e::Seconds(30));
        refused = refused || next.err.find("not to be restarted") != std::string::npos;
        out = next.out;
        return next.status.exit_code() == 0;
    }));
    INFO("refused meanwhile: " << refused);
    CHECK(out == "restart 0\n");
    CHECK(first.wait(e2e::Seconds(30)).kind == ddprun::ExitStatus::Kind::kSignaled);
    CHECK(sandbox.leftovers() == "");
}

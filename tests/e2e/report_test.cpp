// --report and --events: every end of a job leaves a report, and the events tell its course.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>

#include "common/system/process_state.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"
#include "tests/machine_pauses.hpp"

using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

std::string ddprun_program() { return (e2e::bin() / "ddprun").string(); }

std::string text_of(const json::object& object, const char* key) { return object.at(key).as_string().c_str(); }

constexpr const char* kEarlierReport = R"({"version":1,"result":"internal"})";

/// A job whose report and events are in the sandbox.
class ReportedJob {
public:
    explicit ReportedJob(const std::string& name) : sandbox(name) {}

    [[nodiscard]] e2e::Command command(std::vector<std::string> options) const {
        options.insert(options.begin(), {ddprun_program(), "--report", report_path(), "--events", events_path()});
        return {.argv = std::move(options)};
    }
    e2e::Outcome run(std::vector<std::string> options) const { return e2e::run(sandbox, command(std::move(options))); }

    [[nodiscard]] std::string report_path() const { return sandbox.path() / "report.json"; }
    [[nodiscard]] std::string events_path() const { return sandbox.path() / "events.jsonl"; }
    [[nodiscard]] json::object report() const {
        const std::string text = e2e::read_file(report_path());
        INFO(text);
        return json::parse(text).as_object();
    }
    [[nodiscard]] std::vector<json::object> events() const {
        std::vector<json::object> events;
        std::istringstream lines(e2e::read_file(events_path()));
        for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line).as_object());
        return events;
    }
    [[nodiscard]] std::vector<std::string> event_names(const std::string& host) const {
        std::vector<std::string> names;
        for (const json::object& event : events())
            if (text_of(event, "host") == host) names.emplace_back(event.at("event").as_string());
        return names;
    }

    e2e::Sandbox sandbox;
};

using Names = std::vector<std::string>;

/// Returns a shell script whose workers report that they run, and go on with `then`.
std::string when_up(const e2e::Sandbox& sandbox, const std::string& then) {
    return "touch " + (sandbox.path() / "up-").string() + "$RANK-$TORCHELASTIC_RESTART_COUNT; " + then;
}

/// Waits until workers of when_up() run for each of `files`: "0-0" is rank 0 of the first group.
bool are_up(const e2e::Sandbox& sandbox, const Names& files) {
    return e2e::eventually(e2e::Seconds(60), [&] {
        return std::ranges::all_of(
            files, [&](const std::string& file) { return std::filesystem::exists(sandbox.path() / ("up-" + file)); });
    });
}

}  // namespace

TEST_CASE("a success and a failure of a worker leave their reports", "[e2e]") {
    const ReportedJob job("report-ends");
    e2e::write_file(job.report_path(), kEarlierReport);
    CHECK(job.run({"--nproc-per-node", "2", "true"}).status.exit_code() == 0);
    const json::object success = job.report();
    CHECK(success.at("result") == "succeeded");
    CHECK(success.at("exit_code") == 0);
    CHECK(success.at("world_size") == 2);
    CHECK(success.at("groups").as_array().size() == 1);
    CHECK_THAT(text_of(success, "command"), Catch::EndsWith("/true"));

    const auto outcome =
        job.run({"--nproc-per-node", "2", "--rdzv-id", "j7", "sh", "-c",
                 "[ $RANK = 0 ] && exec sleep 1000; echo oh >&2; kill -SEGV $$", "x", "--api-key", "geheim"});
    CHECK(outcome.status.exit_code() == 139);
    const json::object failure = job.report();
    CHECK(failure.at("result") == "worker_failed");
    CHECK(failure.at("exit_code") == 139);
    CHECK(failure.at("run_id") == "j7");
    CHECK(failure.at("culprit").at("rank") == 1);
    CHECK(failure.at("culprit").at("signal_name") == "SIGSEGV");
    CHECK(failure.at("culprit").at("last_lines").at(0) == "oh");
    CHECK_THAT(text_of(failure, "command"),
               Catch::Contains("/sh -c '[ $RANK = 0 ] && exec sleep 1000; ") && Catch::EndsWith(" x --api-key '***'"));
    CHECK_THAT(outcome.err,
               Catch::Contains("\n  command     : sh -c '[ $RANK = 0 ] && exec sleep 1000; "));  // as typed
    CHECK_THAT(outcome.err, Catch::Contains(text_of(failure, "reason")) && Catch::Contains(text_of(failure, "hint")));
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("ranks that fail in the same moment are all listed, in the box and in the report", "[e2e]") {
    const ReportedJob job("report-all");
    // Those that have begun to fail when the first one ends are left to end by themselves, for a second. The agent is
    // stopped meanwhile, so that all have ended when it sees the first one.
    const std::string up = (job.sandbox.path() / "up-").string();
    const std::string go = (job.sandbox.path() / "go").string();
    const std::string fail = "echo 'Traceback (most recent call last):' >&2; echo $$ >" + up + "$RANK.new; mv " + up +
                             "$RANK.new " + up + "$RANK; while [ ! -e " + go + " ]; do sleep 0.01; done; exit 7";
    e2e::Process process(job.sandbox, job.command({"--nproc-per-node", "4", "sh", "-c", fail}));
    std::vector<pid_t> workers;
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] {
        workers.clear();
        for (const char* const rank : {"0", "1", "2", "3"}) {
            const std::string pid = e2e::read_file(up + rank);
            if (pid.empty()) return false;
            workers.push_back(std::stoi(pid));
        }
        return true;
    }));
    const pid_t agent = ddprun::parent_of(workers[0]);
    REQUIRE(::kill(agent, SIGSTOP) == 0);
    e2e::write_file(go, "");
    CHECK(e2e::eventually(e2e::Seconds(60), [&] {
        return std::ranges::all_of(
            workers, [](pid_t pid) { return ddprun::process_state(pid) == ddprun::ProcessState::kEnded; });
    }));
    REQUIRE(::kill(agent, SIGCONT) == 0);
    const ddprun::ExitStatus status = process.wait(e2e::Seconds(60));
    const std::string err = process.err();
    INFO(err);
    CHECK(status.exit_code() == 7);
    const json::object report = job.report();
    std::set<std::int64_t> ranks{report.at("culprit").at("rank").as_int64()};
    REQUIRE(report.at("also_failed").as_array().size() == 1);
    for (const json::value& range : report.at("also_failed").at(0).at("ranks").as_array())
        for (auto rank = range.at(0).as_int64(); rank <= range.at(1).as_int64(); ++rank) ranks.insert(rank);
    CHECK(ranks == std::set<std::int64_t>{0, 1, 2, 3});
    CHECK(report.at("also_failed").at(0).at("exit_code") == 7);
    CHECK_THAT(err, Catch::Contains("  also failed : ranks ") && Catch::Contains(" exited with code 7\n"));
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a job that cannot run leaves a report with the reason that was printed", "[e2e]") {
    struct Refused {
        std::vector<std::string> options;
        int code;
        std::string result;
        std::string command;  // the end of it
    };
    const std::string port = std::to_string(e2e::free_port());
    const auto refused = GENERATE_COPY(values<Refused>({
        {{"no-such-program"}, 127, "usage", "no-such-program"},
        {{"true", ":", "--nproc-per-node", "1", "no-such-program"}, 127, "usage", "true : no-such-program"},
        {{"--nnodes", "3:2", "true"}, 2, "usage", ""},
        {{"--log-dir", "/proc/none", "true"}, 2, "usage", "/true"},
        {{"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + port, "--rdzv-conf", "is_host=0,read_timeout=0.2", "true"},
         69,
         "infrastructure",
         "/true"},
        {{"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + port, "--rdzv-conf", "join_timeout=0.2", "true"},
         69,
         "infrastructure",
         "/true"},
    }));
    const ReportedJob job("report-refused");
    CAPTURE(refused.options);
    e2e::write_file(job.report_path(), kEarlierReport);
    const auto outcome = job.run(refused.options);
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == refused.code);
    const json::object report = job.report();
    CHECK(text_of(report, "result") == refused.result);
    CHECK(report.at("exit_code") == refused.code);
    CHECK_THAT(text_of(report, "command"), Catch::EndsWith(refused.command));
    CHECK_THAT(outcome.err, Catch::Contains(text_of(report, "reason")));
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a program that cannot be executed is wrong usage, with one remedy", "[e2e]") {
    const ReportedJob job("report-noexec");
    const std::string path = job.sandbox.path() / "nox";
    e2e::write_file(path, "no program\n");
    REQUIRE(::chmod(path.c_str(), 0755) == 0);
    const auto outcome = job.run({path});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 126);
    CHECK(job.report().at("result") == "usage");
    CHECK(job.report().at("hint") == "");  // the reason has the remedy
    CHECK_THAT(text_of(job.report(), "reason"), Catch::Contains("Build the program for this machine"));
    CHECK_THAT(outcome.err, !Catch::Contains("chmod"));
    CHECK(job.run({"sh", "-c", "exit 126"}).status.exit_code() == 126);
    CHECK(job.report().at("result") == "worker_failed");
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("an interruption names its signal in the report, also of emulated nodes", "[e2e]") {
    const ReportedJob job("report-interrupted");
    const bool emulated = GENERATE(false, true);
    std::vector<std::string> options{"sh", "-c", when_up(job.sandbox, "exec sleep 1000")};
    if (emulated) options.insert(options.begin(), {"--nnodes", "2", "--local-nodes"});
    e2e::Process process(job.sandbox, job.command(options));
    REQUIRE(are_up(job.sandbox, emulated ? Names{"0-0", "1-0"} : Names{"0-0"}));
    process.signal(SIGTERM);
    CHECK(process.wait(e2e::Seconds(60)).exit_code() == 143);
    const json::object report = job.report();
    CHECK(report.at("result") == "interrupted");
    CHECK(report.at("signal_name") == "SIGTERM");
    CHECK(report.at("exit_code") == 143);
    CHECK_THAT(process.err(), Catch::Contains(text_of(report, "reason")));
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("emulated nodes share one report, with the error file of the culprit, and one file of events", "[e2e]") {
    const ReportedJob job("report-emulated");
    const auto outcome =
        job.run({"--nnodes", "2", "--local-nodes", "--max-restarts", "1", "sh", "-c",
                 "[ $RANK = 0 ] && exec sleep 1000; echo '{\"message\":{\"message\":\"boom\",\"extraInfo\":{}}}' "
                 ">$TORCHELASTIC_ERROR_FILE; exit 3"});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 3);
    const json::object report = job.report();
    CHECK(report.at("result") == "worker_failed");
    CHECK(report.at("culprit").at("host") == "node1");
    CHECK(report.at("culprit").at("message") == "boom");
    CHECK(report.at("error_file").at("message").at("message") == "boom");
    CHECK(report.at("host").is_null());
    CHECK(report.at("restarts") == 1);
    Names names = job.event_names("node1");
    std::erase_if(names, [](const std::string& name) { return name == "waiting" || name == "abort"; });  // may be late
    CHECK(names == Names{"joined", "assigned", "workers_started", "worker_exited", "stopping", "stopped", "assigned",
                         "workers_started", "worker_exited", "stopping", "stopped", "verdict"});
    for (const json::object& event : job.events()) {
        CHECK(event.at("version") == 2);
        if (event.at("event") != "workers_started" || event.at("generation") != 2) continue;
        CHECK(event.at("detect_ms") == 0);  // no worker has printed a sign of its failure
        for (const char* phase : {"stop_ms", "rendezvous_ms", "start_ms"})
            CHECK(event.at(phase).to_number<double>() >= 0);
        CHECK(event.at("workers").at(0).at("pid").as_int64() > 1);
    }
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a path that cannot be written is refused before anything is started", "[e2e]") {
    const e2e::Sandbox sandbox("report-unwritable");
    const std::string option = GENERATE("--report", "--events");
    const std::string path = GENERATE("/proc/none/file", "/");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), option, path, "touch", (sandbox.path() / "ran").string()}});
    CHECK(outcome.status.exit_code() == 2);
    CHECK_THAT(outcome.err, Catch::Contains("ddprun: cannot write the ") &&
                                Catch::Contains(path + " (" + option + ")") &&
                                Catch::Contains(". Name a file that this user can create.\n"));
    CHECK_FALSE(std::filesystem::exists(sandbox.path() / "ran"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a report that would replace the output of ddprun is refused", "[e2e]") {
    const e2e::Sandbox sandbox("report-stdout");
    const std::string path = GENERATE("/dev/stdout", "/dev/stderr");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--report", path, "echo", "ran"}});
    CHECK(outcome.status.exit_code() == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Catch::Contains(path + " (--report): the output of ddprun goes to that file"));
}

TEST_CASE("a file that is not a report is refused and kept, also if ddprun refuses more", "[e2e]") {
    const e2e::Sandbox sandbox("report-mistyped");
    const std::string path = sandbox.path() / "train.py";
    const std::string text = GENERATE("print(1)\n", "{}", "[\"version\",\"result\"]");
    e2e::write_file(path, text);
    const auto rest =
        GENERATE(values<std::vector<std::string>>({{"true"}, {"no-such-program"}, {"--nnodes", "0"}, {}}));
    std::vector<std::string> argv{ddprun_program(), "--report", path};
    argv.insert(argv.end(), rest.begin(), rest.end());
    const auto outcome = e2e::run(sandbox, {.argv = argv});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == (rest == std::vector<std::string>{"no-such-program"} ? 127 : 2));
    CHECK_THAT(outcome.err, Catch::Contains(path + " (--report): that file exists and is not a report of ddprun. Name "
                                                   "another file, or remove this one"));
    CHECK(e2e::read_file(path) == text);
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a report with an error file of 32 levels is replaced by the next run", "[e2e]") {
    const e2e::Sandbox sandbox("report-deep");
    const std::string path = sandbox.path() / "report.json";
    e2e::write_file(path, R"({"version":1,"result":"worker_failed","error_file":)" + std::string(32, '[') +
                              std::string(32, ']') + "}");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--report", path, "true"}});
    INFO(outcome.err);
    CHECK(outcome.status.success());
    CHECK_THAT(e2e::read_file(path), Catch::Contains(R"("result":"succeeded")"));
}

TEST_CASE("one file for the report and the events is refused", "[e2e]") {
    const e2e::Sandbox sandbox("report-same");
    const std::string path = sandbox.path() / "file";
    const std::string other = sandbox.path() / "." / "file";
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), "--report", path, "--events", other, "true"}});
    CHECK(outcome.status.exit_code() == 2);
    CHECK_THAT(outcome.err, Catch::Contains(path + " (--report): --events names the same file. Name two files."));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a worker that cannot be started has no times, and the events have no start", "[e2e]") {
    const ReportedJob job("report-unstarted");
    const std::string program = job.sandbox.path() / "program";
    e2e::write_file(program,
                    "\x7f"
                    "ELF, but nothing that runs");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    const auto outcome = job.run({"--nproc-per-node", "2", program});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 126);
    const json::object report = job.report();
    REQUIRE(report.at("groups").as_array().size() == 1);
    CHECK(report.at("groups").at(0).at("phases").at("productive_ms") == 0);
    const Names names = job.event_names(text_of(report, "host"));
    CHECK(std::ranges::count(names, "start_failed") == 1);
    CHECK(std::ranges::count(names, "workers_started") == 0);
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a report about wrong usage that cannot be written is one warning more", "[e2e]") {
    const e2e::Sandbox sandbox("report-usage");
    const auto outcome =
        e2e::run(sandbox, {.argv = {ddprun_program(), "--report", "/proc/none/r", "--nnodes", "0", "true"}});
    CHECK(outcome.status.exit_code() == 2);
    CHECK(outcome.out == "");
    CHECK_THAT(outcome.err, Catch::StartsWith("ddprun: --nnodes 0: ") &&
                                Catch::Contains("\n[ddprun] cannot write the report /proc/none/r (--report): "));
}

TEST_CASE("a full disk under the events or the report costs a warning, not the job", "[e2e]") {
    const e2e::Sandbox sandbox("report-full");
    const std::string option = GENERATE("--report", "--events");
    const auto outcome = e2e::run(sandbox, {.argv = {ddprun_program(), option, "/dev/full", "sh", "-c", "exit 5"}});
    CHECK(outcome.status.exit_code() == 5);
    CHECK_THAT(outcome.err, Catch::Contains("/dev/full") && Catch::Contains("No space left on device"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("events whose reader hangs delay no worker, and the end by the documented 8 s at most", "[e2e]") {
    const e2e::Sandbox sandbox("report-hangs");
    const std::string path = sandbox.path() / "events";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const ddprun::UniqueFd reader(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string filling(4096, 'x');
    while (::write(reader.get(), filling.data(), filling.size()) > 0) {
    }
    e2e::Process process(sandbox,
                         {.argv = {ddprun_program(), "--events", path, "sh", "-c", when_up(sandbox, "exit 5")}});
    CHECK(are_up(sandbox, {"0-0"}));
    const MachinePauses pauses;
    const auto up_at = std::chrono::steady_clock::now();
    CHECK(process.wait(e2e::Seconds(60)).exit_code() == 5);
    CHECK(std::chrono::steady_clock::now() - up_at - pauses.sum() < 14s);
    CHECK_THAT(process.err(), Catch::Contains("were not written within 8 s") && Catch::Contains(path));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a worker that exits with 93 is not restarted", "[e2e]") {
    const ReportedJob job("report-93");
    const auto outcome = job.run(
        {"--nproc-per-node", "2", "--max-restarts", "5", "sh", "-c", "[ $RANK = 0 ] && exit 93; exec sleep 1000"});
    INFO(outcome.err);
    CHECK(outcome.status.exit_code() == 93);
    CHECK(job.report().at("restarts") == 0);
    CHECK_THAT(outcome.err, Catch::Contains("code 93 means that another attempt is useless"));
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a spare that was not needed says so in its report", "[e2e]") {
    const ReportedJob job("report-spare");
    const std::string port = std::to_string(e2e::free_port());
    const std::vector<std::string> node{
        "--nnodes",
        "1",
        "--spare",
        "--rdzv-endpoint",
        "127.0.0.1:" + port,
        "sh",
        "-c",
        when_up(job.sandbox, "while [ ! -e " + (job.sandbox.path() / "go").string() + " ]; do sleep 0.01; done")};
    std::vector<std::string> argv{ddprun_program()};
    argv.insert(argv.end(), node.begin(), node.end());
    e2e::Process first(job.sandbox, {.argv = argv});
    REQUIRE(are_up(job.sandbox, {"0-0"}));
    e2e::Process spare(job.sandbox, job.command(node));
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] {
        const auto events = job.events();
        return std::ranges::any_of(events, [](const json::object& event) { return event.at("event") == "waiting"; });
    }));
    e2e::write_file(job.sandbox.path() / "go", "");
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 0);
    CHECK(spare.wait(e2e::Seconds(60)).exit_code() == 94);
    CHECK(job.report().at("result") == "not_needed");
    CHECK(job.report().at("exit_code") == 94);
    CHECK(job.sandbox.leftovers() == "");
}

TEST_CASE("a node whose daemon others still need says so when a signal ends it", "[e2e]") {
    const e2e::Sandbox sandbox("daemon-left");
    const std::string port = std::to_string(e2e::free_port());
    const std::vector<std::string> argv{ddprun_program(),
                                        "--nnodes",
                                        "1:2",
                                        "--rdzv-endpoint",
                                        "127.0.0.1:" + port,
                                        "--rdzv-conf",
                                        "last_call_timeout=60",
                                        "sh",
                                        "-c",
                                        when_up(sandbox, "exec sleep 1000")};
    e2e::Process first(sandbox, {.argv = argv});
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return sandbox.pids("ddprund").size() == 1; }));
    e2e::Process second(sandbox, {.argv = argv});
    REQUIRE(are_up(sandbox, {"0-0", "1-0"}));
    first.signal(SIGTERM);
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 143);
    CHECK_THAT(first.err(),
               Catch::Contains("other nodes of the job have not ended") && Catch::Contains("leave ddprund (pid "));
    second.signal(SIGTERM);
    CHECK(second.wait(e2e::Seconds(60)).exit_code() == 143);
    CHECK_THAT(second.err(), !Catch::Contains("leave ddprund"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("two nodes with one --node-rank: the second one reports its other number", "[e2e]") {
    const e2e::Sandbox sandbox("one-number");
    const std::string port = std::to_string(e2e::free_port());
    const e2e::Command node{
        .argv = {ddprun_program(), "--nnodes", "2", "--node-rank", "1", "--master-port", port, "true"}};
    e2e::Process first(sandbox, node);
    e2e::Process second(sandbox, node);
    CHECK(first.wait(e2e::Seconds(60)).exit_code() == 0);
    CHECK(second.wait(e2e::Seconds(60)).exit_code() == 0);
    CHECK_THAT(first.err() + second.err(), Catch::Contains("this is node 0, not 1 as --node-rank says"));
    CHECK(sandbox.leftovers() == "");
}

// The output of workers: last lines of stderr, error files, console, log files.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "agent/output/log_files.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/workers/worker_processes_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a failed worker's last lines are known as soon as its end is", "[agent]") {
    Group group;
    REQUIRE(group.start({"err=first\nlast", R"(error-file={"message": "ValueError: x"})", "exit=1"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.processes.evidence(LocalRank{0}).last_lines == std::vector<std::string>{"first", "last"});
    CHECK(group.processes.evidence(LocalRank{0}).error_message == "ValueError: x");
    CHECK(group.processes.evidence(LocalRank{0}).pid > 0);
}

TEST_CASE("a malformed error file gives no message and is not a failure of the agent", "[agent]") {
    Group group;
    REQUIRE(group.start({"error-file={]", "exit=1"}).has_value());
    group.processes.all_started();
    REQUIRE(group.all_reaped());
    const WorkerEvidence evidence = group.processes.evidence(LocalRank{0});
    CHECK(evidence.error_message.empty());
    CHECK_THAT(evidence.error_file_problem, Catch::Contains("error file"));
}

TEST_CASE("all output has been passed on when a group is reaped, also an unfinished line", "[agent]") {
    Group group;
    const std::string text = std::string(50'000, 'x') + "\nno end";
    REQUIRE(group.start({"out=" + text}).has_value());
    group.processes.all_started();
    REQUIRE(group.all_reaped());
    group.console.drain();
    std::string shown(text.size() + 1, '\0');
    CHECK(::read(group.out.read_end.get(), shown.data(), shown.size()) == static_cast<ssize_t>(text.size()));
    CHECK(shown.substr(0, text.size()) == text);
}

TEST_CASE("log files contain a worker's bytes, are accessible to their owner alone and are never truncated",
          "[agent]") {
    const TemporaryDirectory directory;
    const auto& folder = directory.path();
    const auto path = log_folder((folder / "new").string(), "a/../run", Generation{2}) / log_file_name(Rank{3}, "out");
    CHECK(path.parent_path().parent_path().filename().string().starts_with("a_.._run~"));
    CHECK(path.lexically_relative(folder / "new").string().ends_with("/gen-2/rank-3.out"));
    for (int round = 0; round < 2; ++round) {
        boost::asio::io_context io;
        const Mark mark;
        LogWriter logs(io, [](const std::string&) {});
        int reaped = 0;
        WorkerProcesses processes(io, {[](LocalRank, const ExitStatus&, bool) {}, [&] { ++reaped; }});
        WorkerSpec spec;
        spec.argv = {shapes(), "out=a\rb\nc"};
        spec.out.file = logs.open(path);
        REQUIRE(processes.start(std::move(spec)).has_value());
        processes.all_started();
        CHECK(eventually([&] {
            io.restart();
            io.run_for(std::chrono::milliseconds(5));
            return reaped == 1;
        }));
        logs.finish(std::chrono::seconds(20));
    }
    CHECK(contents(path) == "a\rb\nca\rb\nc");
    CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0600));
    CHECK(std::filesystem::status(path.parent_path()).permissions() == std::filesystem::perms(0700));
}

TEST_CASE("a log file without room costs a warning, not the worker", "[agent]") {
    Group group;
    std::vector<std::string> warnings;
    LogWriter logs(group.io, [&](const std::string& problem) { warnings.push_back(problem); });
    WorkerSpec spec;
    spec.argv = {shapes(), "out=first\n", "out=second\n"};
    spec.out.file = logs.take(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "the log file /dev/full");
    spec.out.console = &group.console;
    REQUIRE(group.processes.start(std::move(spec)).has_value());
    group.processes.all_started();
    REQUIRE(group.all_reaped());
    CHECK(group.exits[0].success());
    CHECK(read_line(group.out.read_end.get()) == "first");
    CHECK(read_line(group.out.read_end.get()) == "second");
    logs.finish(std::chrono::seconds(20));
    REQUIRE(warnings.size() == 2);
    CHECK_THAT(warnings[0], Catch::Contains("cannot write the log file /dev/full: No space left on device"));
    CHECK(warnings[1] == "13 bytes of the log file /dev/full are missing");
}

TEST_CASE("a log folder that cannot be created is an error that names it", "[agent]") {
    const auto opened = open_log_file("/proc/nowhere/run/gen-1/rank-0.out");
    REQUIRE_FALSE(opened.has_value());
    CHECK_THAT(opened.error().message, Catch::Contains("/proc/nowhere"));
}

TEST_CASE("two run ids never share a folder of log files", "[agent]") {
    const auto folder = [](const std::string& run_id) { return log_folder("logs", run_id, Generation{0}).string(); };
    CHECK(folder("job-1_a.b") == "logs/job-1_a.b/gen-0");
    CHECK(folder("a/b") == "logs/a_b~e620c3190468cf61/gen-0");  // the same on every node
    const std::string id(64, 'x');
    CHECK(folder(id) == "logs/" + id + "/gen-0");
    const std::vector<std::string> ids{"a_b",     "a/b",     "a b",   "a~b",    "",
                                       "_",       ".",       "..",    "_.",     id,
                                       id + "xy", id + "xz", "größe", "gr__ße", "../../etc/passwd"};
    std::set<std::string> folders;
    for (const std::string& each : ids) {
        const std::filesystem::path path = folder(each);
        CAPTURE(path);
        const std::string name = path.parent_path().filename().string();
        CHECK(path == std::filesystem::path("logs") / name / "gen-0");
        CHECK(name.size() <= 100);
        CHECK_FALSE(name.starts_with('.'));
        folders.insert(name);
    }
    CHECK(folders.size() == ids.size());
}

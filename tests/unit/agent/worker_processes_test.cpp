// Worker groups of real processes: nothing is gone before everything is.
#include "agent/worker_processes.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "agent/output/log_files.hpp"
#include "common/process_state.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/board_rig.hpp"
#include "tests/unit/agent/processes.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

/// A worker group below this test, which adopts strays as an agent does.
struct Group {
    boost::asio::io_context io{1};
    Mark mark;
    Pipe out;
    Pipe err;
    Console console{io, out.write_end.get(), err.write_end.get()};
    std::map<int, ExitStatus> exits;
    std::set<int> unasked_ends;
    int gone = 0;
    WorkerProcesses processes{io,
                              {[this](LocalRank rank, const ExitStatus& status, bool unasked) {
                                   exits[number(rank)] = status;
                                   if (unasked) unasked_ends.insert(number(rank));
                               },
                               [this] { ++gone; }}};

    Group() {
        adopt_strays();
        out.write_end.reset();  // the console has its own
    }
    ~Group() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
    Result<void> start(std::vector<std::string> actions, const std::string& program = shapes(),
                       std::optional<WorkerBoard> board = {}) {
        WorkerSpec spec;
        if (board) spec.board.emplace(std::move(*board));
        actions.insert(actions.begin(), program);
        spec.argv = std::move(actions);
        spec.error_file = ErrorFile::in_memory().value();
        spec.environment = {mark.assignment(), "TORCHELASTIC_ERROR_FILE=" + spec.error_file->path()};
        spec.out.console = spec.err.console = &console;
        spec.err.stream = Console::Stream::kErr;
        spec.err.keep_tail = true;
        return processes.start(std::move(spec));
    }
    /// Runs the loop until `condition`; false after 20 s.
    bool until(const std::function<bool()>& condition) {
        return eventually([&] {
            io.restart();
            io.run_for(std::chrono::milliseconds(5));
            return condition();
        });
    }
    bool all_gone() {
        return until([this] { return gone > 0; });
    }
    [[nodiscard]] std::size_t living() const { return mark.processes().size(); }
};

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Tells the group to end, and waits for those in `own`, which end by themselves. False: this machine stood still for
/// so long that they were rightly told to end.
[[nodiscard]] bool ends_in_time(Group& group, const std::set<int>& own, int signal = SIGTERM) {
    constexpr std::chrono::seconds kGiven{1};
    const TimePoint from = Clock::now();
    group.processes.signal_group(signal);
    CHECK(group.until([&] { return std::ranges::all_of(own, [&](int rank) { return group.exits.contains(rank); }); }));
    if (Clock::now() < from + kGiven) return true;
    CHECK(group.all_gone());
    WARN("SKIPPED: a worker took longer than the second that it is given to end by itself");
    return false;
}

}  // namespace

TEST_CASE("each worker's end is told once, then that nothing is left", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit=0"}).has_value());
    REQUIRE(group.start({"exit=3"}).has_value());
    REQUIRE(group.start({"raise=6"}).has_value());
    group.processes.all_started();
    CHECK(group.all_gone());
    CHECK(group.exits.size() == 3);
    CHECK(group.exits[1].number == 3);
    CHECK(group.exits[2].exit_code() == 134);
    group.until([] { return true; });
    CHECK(group.gone == 1);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("a group is not gone while a stray of any shape lives, and one signal reaches all", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "session", "daemon", "exit=0"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1 && group.living() == 3; }));
    CHECK(group.gone == 0);
    CHECK(group.processes.remaining().size() == 3);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.living() == 0);
}

TEST_CASE("what ignores SIGTERM and what never holds still dies of SIGKILL", "[agent]") {
    Group group;
    REQUIRE(group.start({"stubborn", "chain", "session", "out=ready\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(read_line(group.out.read_end.get()).empty());  // the loop has not run: nothing is shown yet
    CHECK(group.until([&] { return group.living() >= 3; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.gone == 0);
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_gone());
    CHECK(group.living() == 0);
}

TEST_CASE("a stray that appears after the signal gets it too", "[agent]") {
    Group group;
    REQUIRE(group.start({"session", "block", "err=ready\n", "signals"})
                .has_value());  // its child is ours only when it has ended
    group.processes.all_started();
    REQUIRE(group.until([&] { return !group.processes.last_lines(LocalRank{0}).empty() && group.living() == 2; }));
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.exits[0].success());
}

TEST_CASE("a stopped worker can still end in good order", "[agent]") {
    Group group;
    REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t pid = group.processes.pid(LocalRank{0});
    ::kill(pid, SIGSTOP);
    REQUIRE(group.until([&] { return process_state(pid) == "stopped"; }));
    CHECK(group.processes.rank_board(LocalRank{0}, 0).process_before == "");
    const TimePoint told_from = Clock::now();
    group.processes.signal_group(SIGTERM);
    const TimePoint told_until = Clock::now();
    group.processes.signal_group(SIGTERM);  // by now it goes on
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == SIGTERM);
    const TimePoint looked_from = Clock::now();
    const coordinator::RankBoard board = group.processes.rank_board(LocalRank{0}, 0);
    CHECK(board.process_before == "stopped");  // a verdict may come later
    REQUIRE(board.process_before_ago);
    CHECK(*board.process_before_ago >= looked_from - told_until);
    CHECK(*board.process_before_ago <= Clock::now() - told_from);
    CHECK(group.processes.rank_board(LocalRank{0}, 0).pid == pid);
}

TEST_CASE("ends that the stop did not cause are told apart from those that it did", "[agent]") {
    Group group;
    for (int i = 0; i < 3; ++i) REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t crashed = group.processes.pid(LocalRank{0});
    const pid_t stopped = group.processes.pid(LocalRank{1});
    ::kill(crashed, SIGABRT);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(crashed), &ended, WEXITED | WNOWAIT) == 0);
    ::kill(stopped, SIGSTOP);  // so that somebody else's SIGKILL comes first
    ::kill(stopped, SIGKILL);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
    CHECK(group.unasked_ends == std::set<int>{0, 1});
    CHECK(group.exits[2].number == SIGTERM);
}

TEST_CASE("a worker that is failing by itself may end by itself, and is told to end when it does not", "[agent]") {
    const std::string traceback = "err=Traceback (most recent call last):\nValueError: x\n";
    const std::string error_file = R"(error-file={"message": "ValueError: x"})";
    const int signal = GENERATE(SIGTERM, SIGUSR1);
    Group group;
    REQUIRE(group.start({traceback, "sleep-ms=200", "exit=3"}).has_value());
    REQUIRE(group.start({error_file, "err=.\n", "sleep-ms=200", "exit=4"}).has_value());
    REQUIRE(group.start({traceback, "wait"}).has_value());
    REQUIRE(group.start({"err=a warning\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.last_lines(LocalRank{i}).empty()) return false;
        }
        return true;
    }));
    if (!ends_in_time(group, {0, 1}, signal)) return;
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == 4);
    CHECK(group.exits[2].number == signal);
    CHECK(group.exits[3].number == signal);
    CHECK(group.unasked_ends == std::set<int>{0, 1});
    CHECK(group.processes.failing_since(LocalRank{0}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{3}));
}

TEST_CASE("a worker that has given up a group may end by itself, for its peers end of that", "[agent]") {
    Rig gives_up;
    gives_up.writer->abort("an exception ended its backward", gives_up.add("world", {0, 1}));
    Rig goes_on;  // it has given up another group on purpose, and has gone on
    const auto world = goes_on.add("world", {0, 1});
    goes_on.writer->abort("no more of this", goes_on.add("pipeline", {0, 1}));
    const auto since = goes_on.queue(world, 1);
    since.started();
    since.ended(true);
    Group group;
    REQUIRE(group.start({"err=.\n", "sleep-ms=200", "exit=3"}, shapes(), std::move(gives_up.agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        return !group.processes.last_lines(LocalRank{0}).empty() && !group.processes.last_lines(LocalRank{1}).empty();
    }));
    if (!ends_in_time(group, {0})) return;
    CHECK(group.all_gone());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == SIGTERM);
    CHECK(group.processes.failing_since(LocalRank{0}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{1}));
}

TEST_CASE("a worker that gave up a group, went on and gives up another one now is failing since then", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    Group group;
    rig.writer->abort("no more of this", rig.add("pipeline", {0, 1}));
    const auto since = rig.queue(world, 1);
    since.started();
    since.ended(true);
    rig.writer->abort("an exception ended its backward", world);
    REQUIRE(group.start({"wait"}, shapes(), std::move(rig.agent)).has_value());
    group.processes.all_started();
    CHECK(group.processes.failing_since(LocalRank{0}));
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_gone());
}

TEST_CASE("a worker on its way out of its groups may end by itself, and failed if that was by an exception",
          "[agent]") {
    Rig done;  // it ends as if all were done
    const auto world = done.add("world", {0, 1});
    done.writer->leave(false, done.add("sub", {0, 1}));
    ddp::detail::Board::leave(false, world);
    Rig throws;  // a group of its own it keeps until later
    (void)throws.add("kept", {0, 1});
    ddp::detail::Board::leave(true, throws.add("world", {0, 1}));
    Rig misfit;
    ddp::detail::TransferBatch batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::u8}, 1, 0}};
    misfit.writer->note_misfit(batch, misfit.queue(batch, misfit.add("world", {0, 1})).front());
    Rig goes_on;
    (void)goes_on.add("world", {0, 1});
    ddp::detail::Board::leave(false, goes_on.add("sub", {0, 1}));
    Group group;
    for (Rig* rig : {&done, &throws, &misfit})
        REQUIRE(group.start({"err=.\n", "sleep-ms=200", "exit=3"}, shapes(), std::move(rig->agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.last_lines(LocalRank{i}).empty()) return false;
        }
        return true;
    }));
    if (!ends_in_time(group, {0, 1, 2})) return;
    CHECK(group.all_gone());
    for (const int own : {0, 1, 2}) CHECK(group.exits[own].number == 3);
    CHECK(group.exits[3].number == SIGTERM);
    CHECK_FALSE(group.processes.failing_since(LocalRank{0}));
    CHECK(group.processes.failing_since(LocalRank{1}));
    CHECK(group.processes.failing_since(LocalRank{2}));
    CHECK_FALSE(group.processes.failing_since(LocalRank{3}));
}

TEST_CASE("an end that a debugger keeps to itself is known as soon as the debugger lets go", "[agent]") {
    Group group;
    REQUIRE(group.start({"exit-traced=3"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return process_state(group.processes.pid(LocalRank{0})) == "ended"; }));
    group.until([] { return true; });  // its pidfd has been readable for a whole turn of the loop
    if (group.exits.contains(0) && group.exits[0].number == 97) {
        WARN("SKIPPED: no process may trace another one here (ptrace)");
        return;
    }
    CHECK(group.exits.empty());
    CHECK(group.processes.rank_board(LocalRank{0}, 0).ended);
    SECTION("by itself") {
        for (const pid_t debugger : group.mark.processes()) ::kill(debugger, SIGKILL);
    }
    SECTION("with the rest of the group, whose signal comes too late for the worker") {
        group.processes.signal_group(SIGTERM);
    }
    CHECK(group.all_gone());
    CHECK(group.exits[0] == ExitStatus{ExitStatus::Kind::kExited, 3, false});
    CHECK(group.unasked_ends == std::set<int>{0});
}

TEST_CASE("a notification is for the workers, not for their helpers", "[agent]") {
    Group group;
    REQUIRE(group.start({"child", "block", "err=ready\n", "signals"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return !group.processes.last_lines(LocalRank{0}).empty() && group.living() == 2; }));
    group.processes.notify_workers(SIGUSR1);
    group.processes.notify_workers(SIGTERM);  // the worker's own way to end
    CHECK(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.exits[0].success());
    CHECK(group.living() == 1);
    group.processes.signal_group(SIGTERM);
    CHECK(group.all_gone());
}

TEST_CASE("a program that does not exist is an error, and an empty group is gone", "[agent]") {
    Group group;
    const auto started = group.start({}, "/nonexistent/program");
    REQUIRE_FALSE(started.has_value());
    CHECK(started.error().code == boost::system::errc::no_such_file_or_directory);
    group.processes.all_started();
    CHECK(group.all_gone());
    CHECK(group.exits.empty());
}

TEST_CASE("a failed worker's last words are there as soon as its end is known", "[agent]") {
    Group group;
    REQUIRE(group.start({"err=first\nlast", R"(error-file={"message": "ValueError: x"})", "exit=1"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] { return group.exits.size() == 1; }));
    CHECK(group.processes.last_lines(LocalRank{0}) == std::vector<std::string>{"first", "last"});
    CHECK(group.processes.error_message(LocalRank{0}) == "ValueError: x");
    CHECK(group.processes.pid(LocalRank{0}) > 0);
}

TEST_CASE("a malformed error file is no message and no failure of ours", "[agent]") {
    Group group;
    REQUIRE(group.start({"error-file={]", "exit=1"}).has_value());
    group.processes.all_started();
    REQUIRE(group.all_gone());
    CHECK(group.processes.error_message(LocalRank{0}).empty());
}

TEST_CASE("all output has been passed on when a group is gone, the unfinished line too", "[agent]") {
    Group group;
    const std::string text = std::string(50'000, 'x') + "\nno end";
    REQUIRE(group.start({"out=" + text}).has_value());
    group.processes.all_started();
    REQUIRE(group.all_gone());
    group.console.drain();
    std::string shown(text.size() + 1, '\0');
    CHECK(::read(group.out.read_end.get(), shown.data(), shown.size()) == static_cast<ssize_t>(text.size()));
    CHECK(shown.substr(0, text.size()) == text);
}

TEST_CASE("log files hold a worker's bytes, are the owner's alone and are never shortened", "[agent]") {
    const TemporaryDirectory directory;
    const auto& folder = directory.path();
    const auto path = log_folder((folder / "new").string(), "a/../run", Generation{2}) / log_file_name(Rank{3}, "out");
    CHECK(path == folder / "new" / "a_.._run" / "gen-2" / "rank-3.out");
    for (int round = 0; round < 2; ++round) {
        boost::asio::io_context io;
        const Mark mark;
        LogWriter logs(io, [](const std::string&) {});
        int gone = 0;
        WorkerProcesses processes(io, {[](LocalRank, const ExitStatus&, bool) {}, [&] { ++gone; }});
        WorkerSpec spec;
        spec.argv = {shapes(), "out=a\rb\nc"};
        spec.out.file = logs.take(open_log_file(path).value(), path);
        REQUIRE(processes.start(std::move(spec)).has_value());
        processes.all_started();
        CHECK(eventually([&] {
            io.restart();
            io.run_for(std::chrono::milliseconds(5));
            return gone == 1;
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
    spec.out.file = logs.take(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "/dev/full");
    spec.out.console = &group.console;
    REQUIRE(group.processes.start(std::move(spec)).has_value());
    group.processes.all_started();
    REQUIRE(group.all_gone());
    CHECK(group.exits[0].success());
    CHECK(read_line(group.out.read_end.get()) == "first");
    CHECK(read_line(group.out.read_end.get()) == "second");
    logs.finish(std::chrono::seconds(20));
    REQUIRE(warnings.size() == 2);
    CHECK_THAT(warnings[0], Catch::Contains("cannot write the log file /dev/full: No space left on device"));
    CHECK(warnings[1] == "13 bytes are missing at the end of the log file /dev/full");
}

TEST_CASE("a log folder that cannot be made is an error that names it", "[agent]") {
    const auto opened = open_log_file("/proc/nowhere/run/gen-1/rank-0.out");
    REQUIRE_FALSE(opened.has_value());
    CHECK_THAT(opened.error().message, Catch::Contains("/proc/nowhere"));
    CHECK(log_folder("logs", "..", Generation{0}) == "logs/_../gen-0");
    CHECK(log_folder("logs", "", Generation{0}) == "logs/_/gen-0");
}

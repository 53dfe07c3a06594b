// Workers that fail while their group is being stopped: which ends the stop has caused, and which workers it spares.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/agent/recorder/record_rig.hpp"
#include "tests/unit/agent/workers/worker_processes_rig.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using namespace agent_test;

namespace {

/// A file for which workers wait before they end by themselves: it comes when their group is being stopped.
class Stopped {
public:
    /// Returns the action of shapes.cpp that waits for the file.
    [[nodiscard]] std::string awaited() const { return "await=" + path().string(); }
    void set() const { (void)folder_.file(path().filename().string(), "", 0600); }

private:
    [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "stopped"; }

    TemporaryDirectory folder_;
};

/// Stops the group, waits for the workers in `own`, which end by themselves, and signals the others that were spared.
void stop(Group& group, const Stopped& stopped, const std::set<int>& own, int signal = SIGTERM) {
    CHECK(group.processes.signal_group(signal));
    stopped.set();
    CHECK(group.until([&] { return std::ranges::all_of(own, [&](int rank) { return group.exits.contains(rank); }); }));
    group.processes.signal_spared();
}

}  // namespace

TEST_CASE("ends that the stop did not cause are distinguished from those that it did", "[agent]") {
    Group group;
    for (int i = 0; i < 3; ++i) REQUIRE(group.start({"wait"}).has_value());
    group.processes.all_started();
    const pid_t crashed = group.processes.evidence(LocalRank{0}).pid;
    const pid_t stopped = group.processes.evidence(LocalRank{1}).pid;
    ::kill(crashed, SIGABRT);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(crashed), &ended, WEXITED | WNOWAIT) == 0);
    ::kill(stopped, SIGSTOP);  // so that the SIGKILL of another process comes first
    ::kill(stopped, SIGKILL);
    CHECK_FALSE(group.processes.signal_group(SIGTERM));  // it spares none
    CHECK(group.all_reaped());
    CHECK(group.ends_by_themselves == std::set<int>{0, 1});
    CHECK(group.exits[2].number == SIGTERM);
}

TEST_CASE("a worker that is failing by itself may end by itself, and gets the signal if it does not", "[agent]") {
    const std::string traceback = "err=Traceback (most recent call last):\nValueError: x\n";
    const std::string error_file = R"(error-file={"message": "ValueError: x"})";
    const int signal = GENERATE(SIGTERM, SIGUSR1);
    const Stopped stopped;
    Group group;
    REQUIRE(group.start({traceback, stopped.awaited(), "exit=3"}).has_value());
    REQUIRE(group.start({error_file, "err=.\n", stopped.awaited(), "exit=4"}).has_value());
    REQUIRE(group.start({traceback, "wait"}).has_value());
    REQUIRE(group.start({"err=a warning\n", "wait"}).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.evidence(LocalRank{i}).last_lines.empty()) return false;
        }
        return true;
    }));
    stop(group, stopped, {0, 1}, signal);
    CHECK(group.all_reaped());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == 4);
    CHECK(group.exits[2].number == signal);
    CHECK(group.exits[3].number == signal);
    CHECK(group.ends_by_themselves == std::set<int>{0, 1});
    CHECK(group.processes.evidence(LocalRank{0}).failing_for);
    CHECK_FALSE(group.processes.evidence(LocalRank{3}).failing_for);
}

TEST_CASE("a worker that has aborted a group may end by itself, for its peers fail because of that", "[agent]") {
    Rig aborts;
    aborts.writer->abort("an exception ended its backward", aborts.add("world", {0, 1}));
    Rig goes_on;  // it has aborted another group on purpose, and went on
    const auto world = goes_on.add("world", {0, 1});
    goes_on.writer->abort("no more of this", goes_on.add("pipeline", {0, 1}));
    const auto since = goes_on.queue(world, 1);
    since.started();
    since.ended(true);
    const Stopped stopped;
    Group group;
    REQUIRE(group.start({"err=.\n", stopped.awaited(), "exit=3"}, shapes(), std::move(aborts.agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        return !group.processes.evidence(LocalRank{0}).last_lines.empty() &&
               !group.processes.evidence(LocalRank{1}).last_lines.empty();
    }));
    stop(group, stopped, {0});
    CHECK(group.all_reaped());
    CHECK(group.exits[0].number == 3);
    CHECK(group.exits[1].number == SIGTERM);
    CHECK(group.processes.evidence(LocalRank{0}).failing_for);
    CHECK_FALSE(group.processes.evidence(LocalRank{1}).failing_for);
}

TEST_CASE("a worker that aborted a group, went on and aborts another one now is failing since then", "[agent]") {
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
    CHECK(group.processes.evidence(LocalRank{0}).failing_for);
    group.processes.signal_group(SIGKILL);
    CHECK(group.all_reaped());
}

TEST_CASE("a worker that has left its groups may end by itself, and has failed if an exception made it leave",
          "[agent]") {
    Rig done;  // it ends as after success
    const auto world = done.add("world", {0, 1});
    done.writer->leave(false, done.add("sub", {0, 1}));
    done.writer->leave(false, world);
    Rig throws;  // it keeps a group of its own until later
    (void)throws.add("kept", {0, 1});
    throws.writer->leave(true, throws.add("world", {0, 1}));
    Rig mismatch;
    ddp::detail::TransferList batch;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::U8}, 1, 0}};
    ddp::detail::note_mismatch(*mismatch.writer, batch, mismatch.queue(batch, mismatch.add("world", {0, 1})).front());
    Rig goes_on;
    (void)goes_on.add("world", {0, 1});
    goes_on.writer->leave(false, goes_on.add("sub", {0, 1}));
    const Stopped stopped;
    Group group;
    for (Rig* rig : {&done, &throws, &mismatch})
        REQUIRE(group.start({"err=.\n", stopped.awaited(), "exit=3"}, shapes(), std::move(rig->agent)).has_value());
    REQUIRE(group.start({"err=.\n", "wait"}, shapes(), std::move(goes_on.agent)).has_value());
    group.processes.all_started();
    REQUIRE(group.until([&] {
        for (int i = 0; i < 4; ++i) {
            if (group.processes.evidence(LocalRank{i}).last_lines.empty()) return false;
        }
        return true;
    }));
    stop(group, stopped, {0, 1, 2});
    CHECK(group.all_reaped());
    for (const int own : {0, 1, 2}) CHECK(group.exits[own].number == 3);
    CHECK(group.exits[3].number == SIGTERM);
    CHECK_FALSE(group.processes.evidence(LocalRank{0}).failing_for);
    CHECK(group.processes.evidence(LocalRank{1}).failing_for);
    CHECK(group.processes.evidence(LocalRank{2}).failing_for);
    CHECK_FALSE(group.processes.evidence(LocalRank{3}).failing_for);
}

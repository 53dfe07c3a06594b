// Inquiries about the last ranks of a job whose other workers have ended well.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/diagnosis/snapshot.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/diagnosis/inquiry/inquiries_fixture.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace ddprun::diagnosis;
using namespace ddprun::coordinator;
using namespace ddprun::daemon;
using namespace std::chrono_literals;

namespace {

/// Node "a" has ended well at kStart, and so has rank 2 of node "b".
State with_one_left() {
    State state = running();
    state.group.members.at("a").succeeded = true;
    state.group.members.at("a").succeeded_at = kStart;
    state.group.finished[Rank{2}] = kStart;
    return state;
}

RecordReply ended(std::uint64_t request, int rank, bool last) {
    RecordReply one = shown(request, rank, false, last);
    one.record.process = ProcessState::kEnded;
    one.record.ended = true;
    one.record.status = ExitStatus{};
    return one;
}

RecordReply left(std::uint64_t request, int rank, ProcessState process, bool last) {
    RecordReply one = shown(request, rank, false, last);
    one.record.process = process;
    one.record.pid = 70 + rank;
    if (process == ProcessState::kStopped) one.record.stopped_for = 42s;
    return one;
}

/// Returns the notice when the process of rank 3 is in that state; "-": nothing is requested.
std::string reported(Inquiries& inquiries, const State& state, ProcessState process, TimePoint now) {
    const auto asked = to_agents<RequestRecords>(inquiries.tick(state, now));
    if (asked.empty()) return "-";
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].first == "b");
    const std::uint64_t request = asked[0].second.request;
    CHECK(show(inquiries, state, "b", ended(request, 2, false), now).empty());
    const auto end = show(inquiries, state, "b", left(request, 3, process, true), now);
    const auto notices = to_agents<Notice>(end);
    CHECK((notices.empty() || notices.size() == 2));  // also to nodes that have ended well
    return notices.empty() ? "" : notices[0].second.text;
}

}  // namespace

TEST_CASE("a last rank that is stopped is reported, and again rarely", "[daemon]") {
    Inquiries inquiries;
    State state = with_one_left();
    CHECK(reported(inquiries, state, ProcessState::kStopped, kStart + 4s) == "-");
    CHECK(
        reported(inquiries, state, ProcessState::kStopped, kStart + 5s) ==
        "LEFT BEHIND rank 3 (node b): all other ranks have exited with code 0, and the job waits for this one: its "
        "process "
        "73 is stopped (a signal, a debugger), for 42.0 s or longer: let it go on with kill -CONT 73, or end the job");
    CHECK(reported(inquiries, state, ProcessState::kStopped, kStart + 64s) == "-");
    CHECK_THAT(reported(inquiries, state, ProcessState::kStopped, kStart + 65s), Catch::StartsWith("LEFT BEHIND"));
    CHECK(reported(inquiries, state, ProcessState::kStopped, kStart + 184s) == "-");  // then after twice as long
    CHECK_THAT(reported(inquiries, state, ProcessState::kStopped, kStart + 185s), Catch::StartsWith("LEFT BEHIND"));
}

TEST_CASE("a last rank that is not stopped is not reported", "[daemon]") {
    Inquiries inquiries;
    const State state = with_one_left();
    for (const ProcessState process : {ProcessState::kRunning, ProcessState::kInKernel, ProcessState::kUnknown}) {
        CAPTURE(to_string(process));
        Inquiries fresh;
        CHECK(reported(fresh, state, process, kStart + 5s) == "");
    }
    CHECK(reported(inquiries, state, ProcessState::kRunning, kStart + 5s) == "");
    CHECK(reported(inquiries, state, ProcessState::kStopped, kStart + 14s) == "-");  // not requested all the time …
    CHECK(reported(inquiries, state, ProcessState::kRunning, kStart + 15s) == "");
    CHECK(reported(inquiries, state, ProcessState::kStopped, kStart + 34s) == "-");  // … and less and less often
    CHECK_THAT(reported(inquiries, state, ProcessState::kStopped, kStart + 35s), Catch::StartsWith("LEFT BEHIND"));
}

TEST_CASE("a rank that is stopped for a moment, as by a debugger, is not left behind", "[daemon]") {
    RankRecord one = left(1, 3, ProcessState::kStopped, true).record;
    one.stopped_for = 2900ms;
    CHECK(diagnose_left_behind({one}).empty());
    one.stopped_for = 3s;
    CHECK_THAT(diagnose_left_behind({one}), Catch::StartsWith("LEFT BEHIND rank 3 (node "));
    one.stopped_for.reset();  // an agent that does not report it
    CHECK_FALSE(diagnose_left_behind({one}).empty());
}

TEST_CASE("a stopped rank is not left behind while another rank goes on, or is not known", "[daemon]") {
    Inquiries inquiries;
    State state = running();
    CHECK(inquiries.tick(state, kStart + 1h).empty());  // no worker has ended
    state.group.finished[Rank{2}] = kStart;
    const auto asked = to_agents<RequestRecords>(inquiries.tick(state, kStart + 5s));
    REQUIRE(asked.size() == 2);
    const std::uint64_t request = asked[0].second.request;
    CHECK(show(inquiries, state, "b", ended(request, 2, false)).empty());
    CHECK(show(inquiries, state, "b", left(request, 3, ProcessState::kStopped, true)).empty());
    CHECK(show(inquiries, state, "a", left(request, 0, ProcessState::kStopped, false)).empty());
    SECTION("it goes on") {
        CHECK(show(inquiries, state, "a", left(request, 1, ProcessState::kRunning, true)).empty());
    }
    SECTION("its node does not answer") { CHECK(inquiries.tick(state, kStart + 9s).empty()); }
    SECTION("all are stopped") {
        const auto notices =
            to_agents<Notice>(show(inquiries, state, "a", left(request, 1, ProcessState::kStopped, true)));
        REQUIRE(notices.size() == 2);
        CHECK_THAT(notices[0].second.text,
                   Catch::StartsWith("LEFT BEHIND ranks 0-1 (node a), 3 (node b): ") &&
                       Catch::EndsWith("waits for these: their processes are stopped (a signal, a debugger), for "
                                       "42.0 s or longer: let them go on with kill -CONT 70 71 (node a), 73 (node b), "
                                       "or end the job"));
    }
    SECTION("the job is being stopped meanwhile") {
        state.phase = Phase::kStopping;
        CHECK(show(inquiries, state, "a", left(request, 1, ProcessState::kStopped, true)).empty());
    }
}

TEST_CASE("a report about one generation does not suppress one about the next", "[daemon]") {
    Inquiries inquiries;
    State state = with_one_left();
    CHECK_THAT(reported(inquiries, state, ProcessState::kStopped, kStart + 5s), Catch::StartsWith("LEFT BEHIND"));
    state.group.generation = Generation{6};
    CHECK(to_agents<RequestRecords>(inquiries.tick(state, kStart + 6s)).size() == 1);
}

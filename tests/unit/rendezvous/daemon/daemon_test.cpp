// The daemon with fake agents over real connections: a job from its first node to its verdict.
#include <csignal>
#include <future>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job_limits.hpp"
#include "rendezvous/coordinator/admission.hpp"
#include "rendezvous/daemon/session.hpp"
#include "rendezvous/protocol/json.hpp"
#include "rendezvous/store/client/client.hpp"
#include "rendezvous/store/client/key_text.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/daemon_fixture.hpp"

using namespace ddprun;
using namespace ddprun::test;
using namespace ddprun::protocol;
using namespace ddprun::diagnosis;
using namespace ddprun::coordinator;

namespace {

/// The store's client blocks; the daemon needs this thread meanwhile.
template <typename Work>
awaitable<std::string> beside(Work work) {
    auto result = std::async(std::launch::async, std::move(work));
    co_await eventually([&] { return result.wait_for(0s) == std::future_status::ready; });
    co_return result.get();
}

std::string set_and_get(const Assignment& writer, const Assignment& reader) {
    auto one =
        store::Client::connect({writer.master_addr, static_cast<std::uint16_t>(writer.master_port)}, in(5s)).value();
    auto other =
        store::Client::connect({reader.master_addr, static_cast<std::uint16_t>(reader.master_port)}, in(5s)).value();
    one.set("key", "value").value();
    return other.get("key", in(5s)).value();
}

std::string content_of_store(const Assignment& assignment) {
    return store::missing_key_hint({assignment.master_addr, static_cast<std::uint16_t>(assignment.master_port)}, "key");
}

FailureReport killed_worker() {
    FailureReport failure;
    failure.host = "n2";
    failure.rank = Rank{1};
    failure.status = {ExitStatus::Kind::kSignaled, SIGKILL, false};
    return failure;
}

}  // namespace

TEST_CASE("two nodes get ranks, and the same store", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        auto shape = join_as("n1", 2, 2);
        shape.programs[0].slots = 3;
        const auto n1 = fixture.agent(shape);
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        const auto first = co_await n1->expect<Assignment>();
        const auto second = co_await n2->expect<Assignment>();
        CHECK(n1->welcome()->run_id == "run");
        CHECK(first.node_rank == NodeRank{0});
        CHECK(second.node_rank == NodeRank{1});
        CHECK(first.rank_base == 0);
        CHECK(second.rank_base == 3);
        CHECK(second.world_size == 4);
        CHECK(first.master_addr == "127.0.0.1");
        CHECK(first.master_port == second.master_port);
        CHECK(first.master_port != fixture.endpoint().port);
        const std::string value = co_await beside([&] { return set_and_get(first, second); });
        CHECK(value == "value");
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("the largest join is taken", "[daemon][unit]") {
    const std::string escaped(kMaxRunIdBytes, '\x01');  // JSON writes each byte as six
    protocol::Join join = join_as("n1");
    join.programs.clear();
    for (std::size_t i = 0; i < kMaxPrograms; ++i) {
        std::string role = escaped;
        role.replace(0, 4, fmt::format("{:4}", i));
        join.programs.push_back({role, kMaxSlots / static_cast<int>(kMaxPrograms), 2'000'000'000});
    }
    join.min_nodes = join.max_nodes = kMaxNodes;
    join.launch = {escaped, ~0ull, escaped, 4'294'967'295};
    join.node = join.host = std::string(coordinator::kMaxNameBytes, '\x01');
    join.node_rank = kMaxNodes;
    join.session = std::string(32, 'f');
    join.spare = join.records = true;
    protocol::Join named = join;
    named.run_id = escaped;
    CHECK(encode(protocol::AgentMessage(named)).size() <= daemon::kMaxJoinBytes);
    join.session.reset();
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join);
        co_await n1->join();
        const bool welcomed = co_await eventually([&] { return n1->welcome().has_value(); }, 5s);
        INFO(n1->end());
        CHECK(welcomed);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("stores have an address of their own if there is one", "[daemon][unit]") {
    auto config = quick_config();
    config.store_address = asio::ip::make_address("127.0.0.2");
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1"));
        co_await n1->join();
        const auto assignment = co_await n1->expect<Assignment>();
        CHECK(assignment.master_addr == "127.0.0.2");
        const std::string value = co_await beside([&] { return set_and_get(assignment, assignment); });
        CHECK(value == "value");
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("the end of a connection aborts the group, and the next one has an empty store on another port",
          "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 1, 2));
        const auto n2 = fixture.agent(join_as("n2", 1, 2));
        co_await n1->join();
        co_await n2->join();
        const auto first = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        co_await beside([&] { return set_and_get(first, first); });

        n2->crash();
        const auto abort = co_await n1->expect<Abort>();
        CHECK(abort.generation == first.generation);
        CHECK_THAT(abort.reason, Catch::Contains("n2"));
        n1->send(GroupStopped{first.generation});
        const auto second = co_await n1->expect<Assignment>();
        CHECK(number(second.generation) > number(first.generation));
        CHECK(second.node_count == 1);
        CHECK(second.master_port != first.master_port);
        const std::string content = co_await beside([&] { return content_of_store(second); });
        CHECK(content == "; the store is empty");
        const auto old_store =
            store::Client::connect({first.master_addr, static_cast<std::uint16_t>(first.master_port)}, in(-1s));
        CHECK_FALSE(old_store.has_value());
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a silent node is lost, and one that sends heartbeats is not", "[daemon][unit]") {
    auto config = quick_config();
    config.job.lost_after = 700ms;
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        n1->start_heartbeats(50ms);
        n2->start_heartbeats(50ms);
        co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        co_await pause(1500ms);  // more than twice the silence that is allowed
        const bool is_alive = co_await eventually([&] { return n1->heartbeats_heard() > 3; });
        CHECK(is_alive);
        CHECK(n2->end().empty());

        n2->stop_heartbeats();
        const auto abort = co_await n1->expect<Abort>();
        CHECK_THAT(abort.reason, Catch::Contains("n2 was lost"));
        const bool n2_closed = co_await n2->is_closed();
        CHECK(n2_closed);
        n1->stop_heartbeats();
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("every node gets the verdict, and the daemon ends with it", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        const auto assignment = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        for (const auto& agent : {n1, n2}) agent->send(GroupSucceeded{assignment.generation});
        for (const auto& agent : {n1, n2}) {
            const auto finished = co_await agent->expect<Finished>();
            CHECK(finished.verdict.outcome == Outcome::kSucceeded);
            CHECK(finished.verdict.exit_code == 0);
            const bool closed = co_await agent->is_closed();
            CHECK(closed);
        }
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(fixture.exit_code == exit_code::kSuccess);
        const auto store = store::Client::connect(
            {assignment.master_addr, static_cast<std::uint16_t>(assignment.master_port)}, in(-1s));
        CHECK_FALSE(store.has_value());
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a node whose connection is broken when the job ends gets the verdict when it reconnects", "[daemon][unit]") {
    daemon::DaemonConfig config = quick_config();
    config.job.reconnect_grace = 20s;  // as long as the test may take
    DaemonFixture fixture(std::move(config));
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1"));
        const auto n2 = fixture.agent(join_as("n2"));  // a spare
        co_await n1->join();
        co_await n2->join();
        co_await n1->expect<Assignment>();
        n2->crash();
        co_await pause(50ms);  // one thread: what the crash did to the socket is handled by then
        n1->send(GroupSucceeded{Generation{1}});
        const auto first_answer = co_await n1->expect<Finished>();
        CHECK(first_answer.verdict.outcome == Outcome::kSucceeded);
        const auto again = fixture.agent(join_as("n2"));
        co_await again->join();
        const auto second_answer = co_await again->expect<Finished>();
        CHECK(second_answer.verdict == first_answer.verdict);
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(fixture.exit_code == exit_code::kSuccess);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("the daemon does not wait for a node that was interrupted and has ended by itself", "[daemon][unit]") {
    daemon::DaemonConfig config = quick_config();
    config.job.reconnect_grace = 20s;  // as long as the test may take
    DaemonFixture fixture(std::move(config));
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        const auto assignment = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        for (const auto& agent : {n1, n2}) {
            agent->send(Leave{SIGINT});
            co_await agent->expect<Abort>();
        }
        n1->send(GroupStopped{assignment.generation});
        co_await pause(50ms);  // one thread: the daemon has read it by then
        n1->crash();           // an agent that has ended closes its connection
        co_await pause(50ms);
        n2->send(GroupStopped{assignment.generation});
        const auto finished = co_await n2->expect<Finished>();
        CHECK(finished.verdict.outcome == Outcome::kStopped);
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(fixture.exit_code == exit_code::kSuccess);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a job that failed is a job that the daemon has finished", "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        const auto assignment = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        n2->send(WorkerFailed{assignment.generation, killed_worker()});
        co_await n1->expect<Abort>();
        n1->send(GroupStopped{assignment.generation});
        n2->send(GroupStopped{assignment.generation});
        const auto finished = co_await n1->expect<Finished>();
        CHECK(finished.verdict.outcome == Outcome::kWorkerFailed);
        CHECK(finished.verdict.exit_code == exit_code::kSignalBase + SIGKILL);
        REQUIRE(finished.verdict.culprit.has_value());
        CHECK(finished.verdict.culprit->host == "n2");
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(fixture.exit_code == exit_code::kSuccess);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a daemon that is signaled to end reports to its agents, and ends in time although one does not receive",
          "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        co_await n1->join();
        const auto deaf = co_await client::ControlClient::connect(fixture.endpoint(), in(5s));  // never receives
        const AgentMessage join = join_as("n2", 2, 2);
        (*deaf)->send(join);
        co_await n1->expect<Assignment>();

        const TimePoint start = Clock::now();
        fixture.daemon->stop(SIGTERM);
        const auto finished = co_await n1->expect<Finished>();
        CHECK(finished.verdict.outcome == Outcome::kStopped);
        CHECK(finished.verdict.exit_code == exit_code::kSignalBase + SIGTERM);
        CHECK_THAT(finished.verdict.reason, Catch::Contains("SIGTERM"));
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(fixture.exit_code == exit_code::kSignalBase + SIGTERM);
        CHECK(Clock::now() - start < 8s);  // without its own limit it would wait for ever
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a daemon without agents ends after its linger time, counted from the last one", "[daemon][unit]") {
    auto config = quick_config();
    config.job.linger = 400ms;
    config.job.reconnect_grace = 20s;  // else the job itself ends first, for lack of nodes
    config.job.hold = 0s;              // a crash with unread bytes reads as a broken connection, whose agent may dial
    DaemonFixture fixture(config);
    const auto test = [&]() -> awaitable<void> {
        const auto n1 = fixture.agent(join_as("n1", 2, 2));
        co_await n1->join();
        n1->start_heartbeats(50ms);
        co_await pause(1s);
        CHECK(fixture.running());
        n1->crash();
        const TimePoint start = Clock::now();
        const bool ended = co_await fixture.has_ended();
        CHECK(ended);
        CHECK(Clock::now() - start >= 300ms);  // a tick earlier than the linger time at most
        CHECK(fixture.exit_code == exit_code::kInfrastructure);
    };
    REQUIRE(run(fixture.io, test()));
}

TEST_CASE("a daemon without any connection ends after its linger time", "[daemon][unit]") {
    auto config = quick_config();
    config.job.linger = 200ms;
    DaemonFixture fixture(config);
    REQUIRE(run(fixture.io, [](DaemonFixture& f) -> awaitable<void> { co_await f.has_ended(); }(fixture)));
    CHECK(fixture.exit_code == exit_code::kInfrastructure);
}

TEST_CASE("a ddpctl gets the flight records of agents that know them, older ones are not asked, the job goes on",
          "[daemon][unit]") {
    DaemonFixture fixture;
    const auto test = [&]() -> awaitable<void> {
        auto knows = join_as("n1", 2, 2);
        knows.records = true;
        const auto n1 = fixture.agent(knows);
        const auto n2 = fixture.agent(join_as("n2", 2, 2));
        co_await n1->join();
        co_await n2->join();
        const auto assignment = co_await n1->expect<Assignment>();
        co_await n2->expect<Assignment>();
        CHECK(n1->welcome()->records);

        auto inspector = (co_await client::ControlClient::connect(fixture.endpoint(), in(5s))).value();
        const AgentMessage request = Inspect{kProtocolVersion, {}, 16};
        inspector->send(request);
        const auto asked = co_await n1->expect<RequestRecords>();
        CHECK(asked.operations == 16);
        RecordReply shown{asked.generation, asked.request, true, {}};
        shown.record.host = "n1";
        shown.record.rank = Rank{assignment.rank_base};
        const AgentMessage answer = shown;
        n1->send(answer);
        const DaemonMessage passed_on = (co_await inspector->receive()).value();
        CHECK(std::get<RecordReply>(passed_on) == shown);
        const DaemonMessage end = (co_await inspector->receive()).value();
        CHECK(std::get<Inspected>(end).silent == std::vector<std::string>{"n2"});
        CHECK(std::get<Inspected>(end).run_id == "run");

        const AgentMessage nonsense = Heartbeat{};
        inspector->send(nonsense);
        const auto closed = co_await inspector->receive();
        CHECK(closed.error().code == Errc::kClosed);

        auto newer = (co_await client::ControlClient::connect(fixture.endpoint(), in(5s))).value();
        const AgentMessage other_version = Inspect{kProtocolVersion + 1, {}, 16};
        newer->send(other_version);
        const DaemonMessage refusal = (co_await newer->receive()).value();
        CHECK(std::get<Rejected>(refusal).reason ==
              "ddpctl uses version 10 of the protocol, this daemon version 9: use the same ddprun for both");

        n1->crash();
        const auto abort = co_await n2->expect<Abort>();  // the first message since its assignment
        CHECK(abort.generation == assignment.generation);
    };
    REQUIRE(run(fixture.io, test()));
}

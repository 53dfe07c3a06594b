// What the worker library writes into its flight record, and what the agent reads from it.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/agent/recorder/record_rig.hpp"
#include "worker_lib/src/group/store_wait.hpp"
#include "worker_lib/src/native/p2p/work.hpp"
#include "worker_lib/src/operation/device_call_mark.hpp"
#include "worker_lib/src/operation/work_state.hpp"
#include "worker_lib/src/util/timeouts.hpp"

using namespace ddprun;
using namespace ddprun::agent;
using protocol::FlightRecord;
using namespace std::chrono_literals;

TEST_CASE("the agent reads what the library writes: queued, begun, done and failed operations, members, phase",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2, 3});
    const auto odd = rig.add("world/1.1:odd", {1, 3});
    const auto first = rig.queue(world, 1, "bucket 0");
    first.started();
    first.ended(true);
    const auto second = rig.queue(world, 2);
    second.started();
    second.waited(true);
    (void)rig.queue(world, 3);
    const auto failed = rig.queue(odd, 1);
    failed.started();
    failed.ended(false);
    rig.writer->set_phase("eval");

    const FlightRecord view = rig.agent.view(100);
    CHECK(view.written);
    CHECK(view.phase == "eval");
    REQUIRE(view.groups.size() == 2);
    CHECK(view.groups[0].name == "world");
    CHECK(view.groups[0].members == std::vector<protocol::RankRun>{{0, 4, 1}});
    CHECK(view.groups[1].members == std::vector<protocol::RankRun>{{1, 2, 2}});
    CHECK(view.groups[0].queued == 3);
    CHECK(view.groups[0].started == 2);
    CHECK(view.groups[0].done == 1);
    CHECK(view.groups[1].done == 0);
    REQUIRE(view.operations.size() == 4);
    CHECK(describe(view.operations[0]) == "#1 all_reduce sum f32[5] 'bucket 0'");
    CHECK(view.operations[0].ended_ago);
    CHECK_FALSE(view.operations[1].ended_ago);
    CHECK_FALSE(view.operations[2].started_ago);
    CHECK(view.operations[3].failed);
    CHECK(view.operations[3].group == 1);
    CHECK_THAT(describe_activity(view), Catch::StartsWith("in #2 all_reduce sum f32[6] of group 'world' for ") &&
                                            Catch::EndsWith("; in phase 'eval'"));
    CHECK(protocol::has_operation_under_way(describe_activity(view)));
}

TEST_CASE("the agent reads in which call of NCCL the thread of a device is, for which group, and for how long",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    const auto operation = rig.queue(world, 1);
    const ddp::detail::DeviceCallMark mark(rig.writer->device_call(1));
    const ddp::detail::DeviceCallMark other(rig.writer->device_call(0));
    CHECK(rig.agent.view(100).device_call.name.empty());
    mark.enter("cuEventQuery", operation.claim().id, Clock::now());
    CHECK(rig.agent.view(100).device_call.name.empty());  // the thread asks the device all the time
    mark.enter("ncclAllReduce", operation.claim().id, Clock::now() - 40s);
    other.enter("cuEventQuery", 0, Clock::now() - 2s);
    const FlightRecord view = rig.agent.view(100);
    CHECK(view.device_call.name == "ncclAllReduce");
    CHECK(view.device_call.group == 0);
    CHECK(view.device_call.time >= 40s);
    CHECK(describe_device_call(view) == "ncclAllReduce of group 'world'");
    CHECK_THAT(
        describe_activity(view),
        Catch::StartsWith("had done no collective; its NCCL thread was in ncclAllReduce of group 'world' for 40."));
    FlightRecord ended = view;
    end_device_call(ended, 30s);  // the process has ended since
    CHECK((ended.device_call.time >= 10s && ended.device_call.time < 30s));
    end_device_call(ended, ended.device_call.time - 999ms);
    CHECK(ended.device_call == protocol::DeviceCall());
    mark.leave();
    CHECK(describe_device_call(rig.agent.view(100)) == "cuEventQuery");  // its operation has no entry
    other.enter("cuEventQuery", operation.claim().id + 7, Clock::now() - 2s);
    CHECK(rig.agent.view(100).device_call.group == -1);
    CHECK(rig.writer->device_call(flight_record::kDevices) == nullptr);  // no room for it
    ddp::detail::DeviceCallMark().enter("ncclBroadcast", 0, Clock::now());
}

TEST_CASE("the agent reads that an operation failed by a mismatch, and which group was aborted, why and when first",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    (void)rig.add("other", {0, 1});
    const auto record_entry = rig.queue(world, 1);
    record_entry.started();
    record_entry.mismatched();
    CHECK_FALSE(rig.agent.view(100).operations[0].mismatch);  // it has not ended yet
    record_entry.ended(false);
    rig.writer->abort("loss is NaN", world);
    rig.writer->abort("something else", world);
    const FlightRecord view = rig.agent.view(100);
    CHECK(view.operations[0].mismatch);
    CHECK_FALSE(view.operations[0].timed_out);
    CHECK(view.groups[0].aborted_ago);
    CHECK(view.groups[0].aborted_after == view.operations[0].id);
    CHECK(view.groups[0].abort_reason == "loss is NaN");
    CHECK_FALSE(view.groups[1].aborted_ago);
    rig.writer->remove(world);
    for (std::size_t i = 0; i < flight_record::kGroups; ++i) (void)rig.add("more", {0, 1});
    const auto again = rig.agent.view(100).groups;  // one of them has the slot
    CHECK(std::ranges::none_of(again, [](const auto& group) { return group.aborted_ago.has_value(); }));
}

TEST_CASE("the flight record has sends and receives beside the collectives, each with its peer", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2});
    rig.queue(world, 1).ended(true);
    ddp::detail::TransferList batch;
    batch.seq = 5;
    batch.transfers = {{true, {nullptr, 10, ddp::DType::F64}, 1, 3}, {false, {nullptr, 20, ddp::DType::U8}, 2, 0}};
    const auto& record_entries = rig.queue(batch, world);
    REQUIRE(record_entries.size() == 2);
    record_entries[0].ended(true);
    const FlightRecord view = rig.agent.view(100);
    REQUIRE(view.operations.size() == 3);
    CHECK(describe(view.operations[1]) == "send #5 f64[10] peer 1 tag 3");
    CHECK(view.operations[1].ended_ago);
    CHECK(describe(view.operations[2]) == "recv #5 u8[20] peer 2 tag 0");
    CHECK(view.operations[2].seq == 1);
    CHECK(view.groups[0].queued == 1);  // they are not steps of the group
    CHECK_THAT(describe_activity(view),
               Catch::StartsWith("had finished send #5 f64[10] peer 1 tag 3 of group 'world', ") &&
                   Catch::Contains(", with recv #5 u8[20] peer 2 tag 0 of group 'world' under way for "));
    record_entries[1].waited(true);
    CHECK_THAT(describe_activity(rig.agent.view(100)),
               Catch::StartsWith("in recv #5 u8[20] peer 2 tag 0 of group 'world' for "));
    batch.record_entries.clear();
    CHECK(rig.queue(batch, {}).empty());
}

namespace {

class OneWork final : public ddp::detail::WorkState {
public:
    explicit OneWork(ddp::detail::RecordEntry entry) : WorkState(1, Clock::now(), entry) {}
    [[nodiscard]] const ddp::detail::Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1 barrier"; }

private:
    ddp::detail::Participant owner_{"world", "rank 0", nullptr};
};

}  // namespace

TEST_CASE("the agent reads that an operation failed after another rank, which was lost or has reported it", "[agent]") {
    using ddp::Error;
    using ddp::ErrorCode;
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2});
    const auto with = [&](const Error& error) {
        const auto entry = rig.queue(world, 1);
        entry.started();
        OneWork(entry).complete(std::make_exception_ptr(error));
        return rig.agent.view(100).operations.back();
    };
    CHECK(with(Error(ErrorCode::PeerLost, "any text", {2})).peer_failed);
    CHECK_FALSE(with(Error(ErrorCode::PeerLost, "the store is gone")).peer_failed);
    CHECK_FALSE(with(Error(ErrorCode::System, "no memory")).peer_failed);
    CHECK(with(Error(ErrorCode::System, "no memory").reported()).peer_failed);
    CHECK_FALSE(with(Error(ErrorCode::Timeout, "late", {2})).peer_failed);
    const protocol::RecordedOperation late = with(Error(ErrorCode::Timeout, "late", {2}).reported());
    CHECK((late.peer_failed && late.timed_out && !late.mismatch));
    const protocol::RecordedOperation mismatch =
        with(Error(ErrorCode::Mismatch, "others").reported().reworded("the same, reworded"));
    CHECK((mismatch.peer_failed && mismatch.mismatch && !mismatch.timed_out));
    rig.queue(world, 2).ended(true);
    CHECK_FALSE(rig.agent.view(100).operations.back().peer_failed);
}

TEST_CASE("a worker whose world could not form because of another rank has failed after a peer", "[agent]") {
    Rig rig;
    ::setenv(flight_record::kDescriptorVariable, std::to_string(rig.agent.descriptor()).c_str(), 1);
    ddp::detail::GroupSpec world;
    world.name = "world";
    world.members = {0, 1};
    const auto form = [&](const ddp::Error& error) {
        const ddp::detail::InitWait waiting(world);
        waiting.run([&] { throw error; });
    };
    CHECK_THROWS_AS(form({ddp::ErrorCode::Timeout, "rank 1 has not joined", {1}}), ddp::Error);
    CHECK_FALSE(failed_after_peer(rig.agent.view(100)));
    CHECK_THROWS_AS(form({ddp::ErrorCode::PeerLost, "rank 1 has ended", {1}}), ddp::Error);
    const FlightRecord view = rig.agent.view(100);
    REQUIRE(view.operations.size() == 2);
    CHECK((is_init(view.operations[1]) && view.operations[1].failed));
    CHECK(failed_after_peer(view));
    ::unsetenv(flight_record::kDescriptorVariable);
}

TEST_CASE("a worker that goes on after the failure of a peer has not failed because of it", "[agent]") {
    FlightRecord view;
    view.operations.resize(3);
    auto& failed = view.operations[0];
    auto& beside = view.operations[1];
    auto& next = view.operations[2];
    failed.queued_ago = 4s;
    failed.ended_ago = 3s;
    failed.failed = failed.peer_failed = true;
    beside.queued_ago = 5s;
    beside.ended_ago = 2s;
    next.queued_ago = 2s;
    CHECK(failed_after_peer(view));  // one of another group, called before, has succeeded since
    next.ended_ago = 1s;
    CHECK_FALSE(failed_after_peer(view));
    next.failed = true;
    CHECK(failed_after_peer(view));
}

TEST_CASE("the agent reads the timeout of each operation, and limits the longest ones", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2});
    const auto timeout = GENERATE(1ms, 1'800'000ms, ddp::detail::kForever);
    const auto shown = std::min<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(UINT32_MAX));
    ddp::detail::Operation operation;
    operation.seq = 1;
    operation.timeout = timeout;
    (void)record(operation, rig.writer->claim(), world, Clock::now());
    ddp::detail::TransferList batch;
    batch.transfers = {{true, {nullptr, 10, ddp::DType::F64}, 1, -3}};
    batch.timeout = timeout;
    (void)rig.queue(batch, world);
    (void)record(*rig.writer, ddp::detail::StoreStep{"split", "rows", timeout, 1}, world, Clock::now());
    const FlightRecord view = rig.agent.view(100);
    REQUIRE(view.operations.size() == 3);
    for (const auto& one : view.operations) CHECK(one.timeout == shown);
    CHECK(view.operations[1].transfer_tag == -3);
}

TEST_CASE("among transfers that end with their group, those are late that have exceeded their own timeout", "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1, 2});
    ddp::detail::TransferList batch;
    batch.transfers = {{false, {nullptr, 10, ddp::DType::F64}, 1, 3}, {false, {nullptr, 20, ddp::DType::U8}, 2, 0}};
    const bool late = GENERATE(false, true);
    const bool by_deadline = GENERATE(false, true);
    batch.deadline = Clock::now() + std::chrono::hours(late ? 0 : 1);
    (void)rig.queue(batch, world);
    ddp::detail::P2pWork work(batch, {}, nullptr);
    CHECK_FALSE(work.finish(0));
    work.give_up(by_deadline ? ddp::ErrorCode::Timeout : ddp::ErrorCode::PeerLost, !by_deadline);
    const FlightRecord view = rig.agent.view(100);
    CHECK_FALSE((view.operations[0].failed || view.operations[0].timed_out));
    CHECK(view.operations[1].failed);
    CHECK(view.operations[1].timed_out == (late && by_deadline));
    CHECK(view.operations[1].peer_failed == !by_deadline);
}

TEST_CASE("a wait for a collective includes those before it in its group, each transfer has a mark of its own",
          "[agent]") {
    Rig rig;
    const auto world = rig.add("world", {0, 1});
    const auto other = rig.add("other", {0, 1});
    rig.queue(world, 1).started();
    const auto last = rig.queue(world, 2);
    rig.queue(other, 1).started();
    ddp::detail::TransferList batch;
    batch.seq = 1;
    batch.transfers = {{false, {nullptr, 1, ddp::DType::U8}, 1, 0}};
    (void)rig.queue(batch, world);
    const auto waits = [&] {
        std::vector<std::pair<bool, bool>> found;  // waited for; by polling
        for (const auto& operation : rig.agent.view(100).operations)
            found.emplace_back(operation.waited_ago.has_value(), operation.polled);
        return found;
    };
    const std::pair nobody{false, false};
    CHECK(waits() == std::vector{nobody, nobody, nobody, nobody});
    last.waited(false);
    CHECK(waits() == std::vector{{true, true}, {true, true}, nobody, nobody});
    last.waited(true);
    CHECK(waits() == std::vector{{true, false}, {true, false}, nobody, nobody});
    CHECK(rig.agent.view(0).operations.size() == 4);  // that one has not begun, but the program waits for it
    last.ended(true);
    CHECK(waits() == std::vector{nobody, {true, false}, nobody, nobody});
    const auto step = record(*rig.writer, ddp::detail::StoreStep{"monitored_barrier", "save", 1s, 1},
                             rig.add("world (store)", {0, 1}), Clock::now());
    step.started();
    step.waited(true);
    CHECK_THAT(describe_activity(rig.agent.view(100)),
               Catch::StartsWith("in #1 monitored_barrier 'save' of group 'world (store)' for "));
}

TEST_CASE("a worker that is in no operation shows its last one, and one without a flight record shows none",
          "[agent]") {
    Rig rig;
    CHECK(describe_activity(rig.agent.view(4)) == "had done no collective");
    const auto world = rig.add("world", {0, 1});
    const auto done = rig.queue(world, 1);
    done.started();
    done.ended(true);
    CHECK_THAT(describe_activity(rig.agent.view(4)),
               Catch::StartsWith("had finished #1 all_reduce sum f32[5] of group 'world', "));
    const auto failed = rig.queue(world, 2);
    failed.started();
    failed.ended(false);
    CHECK_THAT(describe_activity(rig.agent.view(4)), Catch::StartsWith("failed in #2 all_reduce"));
    CHECK(describe_activity(WorkerFlightRecord::make()->view(4)) == "");
}

TEST_CASE("the agent reads which groups were left, how, and which message did not fit its receive", "[agent]") {
    Rig rig;
    const auto done = rig.add("done", {0, 1});
    const auto thrown = rig.add("thrown", {0, 1});
    const auto kept = rig.add("kept", {0, 1});
    rig.writer->leave(false, done);
    rig.writer->leave(true, thrown);
    ddp::detail::TransferList batch;
    batch.transfers = {{false, {nullptr, 5, ddp::DType::U8}, 1, 7}};
    const auto receive = rig.queue(batch, kept).front();
    ddp::detail::TransferList sent;
    sent.seq = 9;
    sent.transfers = {{true, {nullptr, 4, ddp::DType::U8}, 1, 7}};
    ddp::detail::note_mismatch(*rig.writer, sent, receive);
    receive.ended(false);
    const FlightRecord view = rig.agent.view(16);
    REQUIRE(view.groups.size() == 3);
    CHECK(view.groups[0].left_ago);
    CHECK(view.groups[0].left_after == 0);  // no operation was called before
    CHECK_FALSE(view.groups[0].left_by_exception);
    CHECK(view.groups[1].left_ago);
    CHECK(view.groups[1].left_by_exception);
    CHECK_FALSE(view.groups[2].left_ago);
    REQUIRE(view.operations.size() == 2);
    for (const auto& operation : view.operations) CHECK((operation.failed && operation.mismatch));
    CHECK(describe(view.operations[1]) == "arrived #9 u8[4] peer 1 tag 7");
    for (const auto& group : {done, thrown}) rig.writer->remove(group);
    for (std::size_t i = 0; i < flight_record::kGroups; ++i) (void)rig.add("more", {0, 1});
    const auto again = rig.agent.view(16).groups;  // others have their slots
    CHECK(std::ranges::none_of(again, [](const auto& group) { return group.left_ago.has_value(); }));
}

// The flight record is written by many threads and read by another process: each entry that is read is one operation.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"
#include "worker_lib/src/operation/work_state.hpp"

using namespace ddp::detail;
using namespace std::chrono_literals;
namespace layout = ddprun::flight_record;

namespace {

class SomeWork final : public WorkState {
public:
    using WorkState::WorkState;
    [[nodiscard]] const Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1"; }

private:
    const Participant owner_{"world", "rank 0"};
};

/// A group of one rank.
GroupSpec alone() {
    GroupSpec spec;
    spec.name = "group";
    spec.members = {0};
    return spec;
}

}  // namespace

TEST_CASE("an entry of the flight record is complete or absent while others overwrite it", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    std::atomic<bool> stop = false;
    std::vector<std::thread> writers;
    for (int number = 0; number < 2; ++number) {
        const GroupEntry group = add_group(recorder, alone());
        writers.emplace_back([&recorder, &stop, group] {
            for (std::uint64_t seq = 1; !stop; ++seq) {
                Operation operation;
                operation.kind = OpKind::kAllReduce;
                operation.seq = seq;
                operation.buffer.count = seq;
                operation.counts_hash = seq;
                const RecordEntry record_entry = record(operation, recorder.claim(), group, ddprun::Clock::now());
                record_entry.started();
                record_entry.ended(true);
            }
        });
    }
    constexpr int kLooks = 10'000'000;  // a reader without the check of versions sees a torn one among fewer
    int whole = 0;
    bool torn = false;
    const auto enough = ddprun::Clock::now() + 20s;  // a sanitizer on a busy machine looks slowly
    for (std::uint64_t looks = 0; whole < kLooks && (looks % 4096 != 0 || ddprun::Clock::now() < enough); ++looks) {
        // The entry that is being written at this moment, or is about to be.
        const std::uint64_t slot = (memory->last_operation.load(std::memory_order_relaxed) + 1) % layout::kOperations;
        layout::Operation operation;
        if (!memory->operations[slot].operation.load(operation)) continue;
        ++whole;
        torn = torn || operation.seq != operation.count || operation.seq != operation.fingerprint ||
               operation.id % layout::kOperations != slot;
    }
    stop = true;
    for (std::thread& writer : writers) writer.join();
    CHECK(whole > kLooks / 1000);
    CHECK_FALSE(torn);
}

TEST_CASE("a waiting thread is recorded as blocked or as polling, and nothing is recorded after the operation's end",
          "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    const GroupEntry group = add_group(recorder, alone());
    auto submit = [&, seq = std::uint64_t{0}]() mutable {
        Operation operation;
        operation.seq = ++seq;
        const auto now = ddprun::Clock::now();
        return std::make_shared<SomeWork>(seq, now + 60s, record(operation, recorder.claim(), group, now));
    };
    const auto mark_of = [&](const WorkState& state) { return memory->operations[state.seq()].waited.load(); };

    const auto state = submit();
    ddp::Work work = WorkState::handle(state);
    CHECK(mark_of(*state) == 0);
    CHECK_FALSE(work.done());
    const std::int64_t looked = mark_of(*state);
    CHECK(looked < 0);
    CHECK_THROWS_AS(work.wait_host(1ms), ddp::Error);
    CHECK(mark_of(*state) == looked);  // since the first poll; the thread may do something else now
    std::thread waiter([&work] { work.wait(); });
    while (mark_of(*state) <= 0) std::this_thread::yield();
    CHECK(mark_of(*state) > -looked);
    state->complete(nullptr);
    waiter.join();

    const auto ended = submit();
    ended->complete(nullptr);
    ddp::Work over = WorkState::handle(ended);
    over.wait();
    over.wait_host(1ms);
    CHECK(over.done());
    CHECK(mark_of(*ended) == 0);
}

TEST_CASE("an operation that ends late does not lower the number of the latest one that is done", "[worker_lib]") {
    const auto memory = std::make_unique<layout::Memory>();
    FlightRecorder recorder(*memory);
    const GroupEntry group = add_group(recorder, alone());
    const auto queue = [&](std::uint64_t seq) {
        Operation operation;
        operation.seq = seq;
        return record(operation, recorder.claim(), group, ddprun::Clock::now());
    };
    const RecordEntry first = queue(1);
    const RecordEntry second = queue(2);
    const RecordEntry third = queue(3);
    second.started();
    first.started();
    CHECK(group.slot->started.load() == 2);
    third.done_at_once(ddprun::Clock::now());
    second.ended(true);
    first.done_at_once(ddprun::Clock::now());
    CHECK(group.slot->started.load() == 3);
    CHECK(group.slot->done.load() == 3);
}

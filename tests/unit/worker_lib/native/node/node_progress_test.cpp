// NodeProgress: how pauses of the own rank extend the deadline of its operation.

#include "worker_lib/src/native/node/node_progress.hpp"

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"
#include "worker_lib/src/operation/work_state.hpp"

using namespace ddp;
using namespace std::chrono_literals;

namespace {

const ddprun::TimePoint kCalled{1000s};

detail::Operation called(std::uint64_t seq) {
    detail::Operation operation;
    operation.seq = seq;
    operation.timeout = 2s;
    operation.deadline = kCalled + operation.timeout;
    return operation;
}

class SomeWork final : public detail::WorkState {
public:
    using WorkState::WorkState;
    [[nodiscard]] const detail::Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "an operation"; }

private:
    const detail::Participant owner_;
};

}  // namespace

TEST_CASE("a pause over the deadline of an operation extends it, also if it comes before the first look",
          "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    progress.begin(called(1));
    CHECK(progress.look(kCalled + 5s) > 0s);
    CHECK(progress.deadline() == kCalled + 7s);
    CHECK(progress.look(kCalled + 5100ms) == 0s);
    CHECK(progress.deadline() == kCalled + 7s);
    CHECK(progress.look(kCalled + 9s) > 0s);  // another, with 1.9 s left
    CHECK(progress.deadline() == kCalled + 10900ms);
    progress.begin(called(2));
    CHECK(progress.deadline() == kCalled + 2s);
}

TEST_CASE("an earlier deadline of a peer does not undo an extension", "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    progress.begin(called(1));
    (void)progress.look(kCalled + 5s);
    progress.lower_deadline(kCalled + 1900ms);
    CHECK(progress.deadline() == kCalled + 6900ms);
}

TEST_CASE("a rank that has just called waits a moment, though a neighbour's deadline has passed", "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    progress.begin(called(1));
    progress.lower_deadline(kCalled - 1s);  // of one that has paused since it called
    CHECK(progress.deadline() == kCalled + detail::kReporting);
}

TEST_CASE("whoever waits for the work of an operation waits as much longer", "[native][unit]") {
    testing::Ranks ranks(1);
    auto& progress = ranks[0].progress;
    const detail::Operation operation = called(1);
    SomeWork work(operation.seq, operation.deadline);
    progress.begin(operation, &work);
    (void)progress.look(kCalled + 5s);
    CHECK(work.deadline() == progress.deadline());
    progress.finish(operation);
    (void)progress.look(kCalled + 50s);
    CHECK(work.deadline() == kCalled + 7s);
}

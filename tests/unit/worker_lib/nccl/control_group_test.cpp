// Host memory and barriers of an NCCL group, which go to its native twin.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "ddp/collectives.hpp"
#include "ddp/reducer.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Contains;

TEST_CASE("nccl: collectives of host memory give what a native group gives, beside those of the device", "[nccl]") {
    FakeGroup ranks(3);
    ranks.has_control_group = true;
    const std::string complaints = ranks.complaints([](ProcessGroup& group) {
        std::string wrong;
        const auto expect = [&](bool holds, const char* what) {
            if (!holds) wrong += fmt::format("rank {}: {}; ", group.rank(), what);
        };
        std::vector<float> on_device{1.F, 2.F};
        std::vector<std::int16_t> shorts{static_cast<std::int16_t>(group.rank()), 7};
        std::uint32_t bits = 1U << group.rank();
        Work device = group.all_reduce(device_buffer(on_device), ReduceOp::Sum);
        Work sum = group.all_reduce(shorts, ReduceOp::Sum);   // NCCL has no such type
        Work both = group.all_reduce(bits, ReduceOp::BitOr);  // nor this reduction
        both.wait_host();
        sum.wait_host();
        device.wait_host();
        expect(on_device == std::vector{3.F, 6.F}, "the sum on the device");
        expect(shorts == std::vector<std::int16_t>{3, 21}, "the sum of 16-bit integers");
        expect(bits == 7, "the bitwise or");
        group.barrier().wait();
        const auto texts = all_gather_strings(group, std::string(static_cast<std::size_t>(group.rank()), 'x'));
        expect(texts == std::vector<std::string>{"", "x", "xx"}, "the gathered strings");

        const auto part = group.split(group.rank() == 0 ? 0 : 1, group.rank(), "part");
        int one = 1;
        part->all_reduce(one, ReduceOp::Sum).wait();
        expect(one == (group.rank() == 0 ? 1 : 2), "the sum in a part");
        return wrong;
    });
    CHECK(complaints == "");
    require_nothing_left(ranks);
}

TEST_CASE("nccl: a checkpoint of host memory is saved and loaded", "[nccl]") {
    const TemporaryDirectory directory;
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    require_success(ranks.run_worlds([&](ProcessGroup& group) {
        Checkpointer checkpointer(directory.path(), group);
        std::vector<double> weights{1.5, 2.5};
        checkpointer.save(3, {{"weights", weights}});
        weights.assign(2, 0.0);
        if (checkpointer.latest() != std::optional<std::uint64_t>(3)) throw Error(ErrorCode::Io, "no checkpoint");
        checkpointer.load(3, {{"weights", weights}});
        if (weights != std::vector{1.5, 2.5}) throw Error(ErrorCode::Io, "other values");
    }));
}

TEST_CASE("nccl: calls of host memory are compared, and a rank that makes none is named", "[nccl]") {
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    const bool absent = GENERATE(false, true);
    CAPTURE(absent);
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        std::vector<int> values(group.rank() == 0 ? 2 : 3);
        if (absent && group.rank() == 1) return (void)outcome_of([&] { group.monitored_barrier(20'000ms); });
        const OpOptions options{.timeout = absent ? 300ms : 20'000ms};
        const Outcome outcome = outcome_of([&] { group.all_reduce(values, ReduceOp::Sum, options).wait(); });
        // The group has failed, on the device, too, and nothing waits again.
        const Outcome later = outcome_of([&] { group.barrier().wait(); });
        if (!later.failed) throw Error(ErrorCode::System, "the group goes on");
        if (outcome.failed) throw Error(outcome.code, outcome.text);
    });
    if (absent) {
        CHECK(outcomes[0].code == ErrorCode::Timeout);
        CHECK_THAT(outcomes[0].text, Contains("rank 1") && Contains("the first barrier or operation on host memory"));
    } else {
        for (const Outcome& outcome : outcomes) {
            CHECK(outcome.code == ErrorCode::Mismatch);
            CHECK_THAT(outcome.text, Contains("group 'world (host)'") && Contains("all_reduce sum i32[2]") &&
                                         Contains("all_reduce sum i32[3]"));
        }
    }
}

TEST_CASE("nccl: abort ends the operations of host memory, too, and a failure of the one is one of the other",
          "[nccl]") {
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    const bool on_device = GENERATE(false, true);  // where the failure is
    CAPTURE(on_device);
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        group.barrier().wait();
        int value = 1;
        std::vector<float> values(3);
        if (group.rank() == 0 && on_device) {  // rank 1 never calls it
            const Outcome late = outcome_of(
                [&] { group.all_reduce(device_buffer(values), ReduceOp::Sum, {.timeout = 200ms}).wait_host(); });
            if (late.code != ErrorCode::Timeout) throw Error(ErrorCode::System, "no timeout: " + late.text);
        } else if (group.rank() == 0) {
            group.abort("enough");
        }
        const Outcome host = outcome_of([&] { group.all_reduce(value, ReduceOp::Sum).wait(); });
        const Outcome device = outcome_of([&] { group.all_reduce(device_buffer(values), ReduceOp::Sum).wait_host(); });
        throw Error(host.code, fmt::format("{}|{}|{}", host.failed, device.failed, host.text));
    });
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.code == (on_device ? ErrorCode::Timeout : ErrorCode::Aborted));
        CHECK_THAT(outcome.text, Catch::StartsWith("true|true|"));
        if (on_device) CHECK_THAT(outcome.text, Contains("group 'world': not done on the device at its deadline"));
        if (!on_device) CHECK_THAT(outcome.text, Contains("was aborted by rank 0 (host ") && Contains(": enough"));
    }
}

TEST_CASE("nccl: a failure on host memory ends what is in flight on the device, with its code", "[nccl]") {
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        group.barrier().wait();
        std::vector<float> values(3);
        std::vector<int> numbers(group.rank() == 0 ? 2 : 3);
        Work device;
        if (group.rank() == 0)
            device = group.all_reduce(device_buffer(values), ReduceOp::Sum);  // rank 1 never calls it
        (void)outcome_of([&] { group.all_reduce(numbers, ReduceOp::Sum).wait(); });
        device.wait_host();
    });
    CHECK(outcomes[0].code == ErrorCode::Mismatch);
    CHECK_THAT(outcomes[0].text, Contains("#1 all_reduce sum f32[3]") && Contains("all_reduce sum i32[3]"));
    CHECK(outcomes[1].text == "");
}

TEST_CASE("nccl: gradients in host memory are averaged on request", "[nccl]") {
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    require_success(ranks.run_worlds([](ProcessGroup& group) {
        GradientReducer reducer(group, {{"weights", 3}}, {.device = Device::Cpu});
        for (int step = 0; step < 2; ++step) {
            reducer.begin_backward();
            std::ranges::fill(reducer.grad<float>(0), static_cast<float>(group.rank() + step));
            reducer.mark_ready(0);
            (void)reducer.finish_backward();
            if (reducer.grad<float>(0)[2] != 0.5F + static_cast<float>(step)) throw Error(ErrorCode::System, "wrong");
        }
    }));
}

TEST_CASE("nccl: a barrier with a stream is a step of the device, and host memory is behind no stream", "[nccl]") {
    FakeGroup ranks(1);
    ranks.has_control_group = true;
    const auto stream = ranks.gpu.make_stream();
    const auto gate = ranks.gpu.close_gate(stream);
    ProcessGroup group = ranks.world(0);
    group.barrier().wait_host();  // not behind the stream
    Work behind = group.barrier({.stream = {stream}});
    std::this_thread::sleep_for(20ms);
    CHECK_FALSE(behind.done());
    gate->store(true);
    behind.wait_host();
    int value = 1;
    CHECK_THAT(outcome_of([&] { group.all_reduce(value, ReduceOp::Sum, {.stream = {stream}}).wait(); }).text,
               Contains("an operation on host memory does not wait for a CUDA stream"));
}

TEST_CASE("nccl: a group may be destroyed in a callback of an operation on host memory", "[nccl]") {
    FakeGroup ranks(2);
    ranks.has_control_group = true;
    const auto outcomes = ranks.run(ranks.spec(0).members, [&](int rank) {
        auto group = std::make_unique<ProcessGroup>(ranks.world(rank));
        std::vector<float> values(1 << 20);
        std::promise<void> ended;
        Work work = group->all_reduce(values, ReduceOp::Sum);
        work.then([&](const std::exception_ptr&) {
            group.reset();
            ended.set_value();
        });
        if (ended.get_future().wait_for(20s) != std::future_status::ready)
            throw Error(ErrorCode::Timeout, "the callback has not returned");
    });
    require_success(outcomes);
}

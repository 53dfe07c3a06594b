// The NCCL backend over the fake GPU, when something goes wrong: every fault ends in an error with its cause and ranks.

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/bootstrap/init_rounds.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Matchers::Contains;
using detail::BackendImpl;
using detail::OpKind;

TEST_CASE("nccl: a start without all ranks ends at its timeout and names the absent ones", "[nccl]") {
    FakeGroup group(4);
    group.init_timeout = 1500ms;  // long enough for the ranks that arrive
    const bool with_rank_0 = GENERATE(true, false);
    const std::vector<int> present = with_rank_0 ? std::vector{0, 2} : std::vector{1, 2};
    const std::vector<int> absent = with_rank_0 ? std::vector{1, 3} : std::vector{0, 3};
    for (const Outcome& outcome : group.run(present, [&](int rank) { (void)group.backend(rank); })) {
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK(outcome.culprits == absent);
        CHECK_THAT(outcome.text,
                   Contains(with_rank_0 ? "ranks 1 and 3 did not arrive" : "ranks 0 and 3 did not arrive"));
        CHECK_THAT(outcome.text, Contains("of 4 in group 'world'"));
    }
}

TEST_CASE("nccl: a start that NCCL never finishes ends at its timeout, and is aborted once", "[nccl]") {
    FakeGroup group(2);
    group.init_timeout = 1500ms;
    group.gpu.init_never_completes = true;
    for (const Outcome& outcome : group.run([](int, BackendImpl&) {})) {
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK_THAT(outcome.text, Contains("all ranks have joined, but NCCL did not connect them"));
    }
    CHECK(group.gpu.counts().aborts == 2);
}

TEST_CASE("nccl: a start that NCCL has failed is tried again with another unique id, by ranks that meet in rounds",
          "[nccl]") {
    FakeGroup group(2);
    const auto start = [&](int rank) {
        detail::GroupSpec spec = group.spec(rank);
        spec.world_size = group.size;
        spec.init = detail::meet_in_round(spec);
        (void)detail::make_nccl_backend(spec, group.gpu.api(), group.limits);
    };
    group.gpu.async_error = FakeGpu::AsyncError{0, 0, ncclSystemError};
    group.init_timeout = 2s;  // for rank 1, which waits for the other in the first barrier
    CHECK(group.run({0, 1}, start).at(0).code == ErrorCode::System);
    group.init_timeout = 20s;
    group.gpu.async_error.reset();
    for (const Outcome& outcome : group.run({0, 1}, start)) CHECK(outcome.text == "");
    CHECK(group.gpu.counts().unique_ids == 2);
}

TEST_CASE("nccl: when rank 0 cannot make a unique id, every rank learns why at once", "[nccl]") {
    FakeGroup group(2);
    group.gpu.unique_id_fails = true;
    for (const Outcome& outcome : group.run([](int, BackendImpl&) {})) {
        CHECK(outcome.code == ErrorCode::System);
        CHECK_THAT(outcome.text, Contains("ncclGetUniqueId on rank 0: system error (as scripted)"));
    }
}

TEST_CASE("nccl: an error that NCCL meets in the background fails what is in flight and to come", "[nccl]") {
    FakeGroup group(2);
    group.gpu.async_error = FakeGpu::AsyncError{0, 2, ncclRemoteError};
    std::vector<float> values(8, 1.0f);
    const auto peer = std::async(std::launch::async, [&] {  // rank 1 takes part in the first operation, then is gone
        return outcome_of([&] {
            std::vector<float> own(8, 1.0f);
            const auto backend = group.backend(1);
            wait_host(*submit(*backend, all_reduce(own, ReduceOp::Sum)));
        });
    });
    const auto backend = group.backend(0);
    wait_host(*submit(*backend, all_reduce(values, ReduceOp::Sum, 1)));
    CHECK(values == std::vector<float>(8, 2.0f));

    auto wanted = all_reduce(values, ReduceOp::Sum, 2);
    wanted.label = "bucket 3";
    const auto failing = submit(*backend, ddp::detail::Operation(wanted));
    const Outcome first = outcome_of([&] { wait_host(*failing); });
    CHECK(first.code == ErrorCode::PeerLost);
    CHECK_THAT(first.text, Contains("#2 all_reduce sum f32[8] 'bucket 3'") && Contains("rank 0 (host ") &&
                               Contains(") of 2 in group 'world'") &&
                               Contains("NCCL failed: remote error (as scripted)"));

    const auto later = submit(*backend, operation(OpKind::kBarrier, 3));
    const Outcome second = outcome_of([&] { later->wait(); });
    CHECK(second.code == ErrorCode::PeerLost);
    CHECK_THAT(second.text, Contains("#3 barrier: given up after #2 all_reduce"));
    peer.wait();
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: an operation that NCCL will not launch fails, and the group with it", "[nccl]") {
    // An error of the arguments, too: the communicator would give the same answer to all that follows.
    const ncclResult_t answer = GENERATE(ncclSystemError, ncclInvalidArgument);
    FakeGroup group(1);
    const auto backend = group.backend(0);
    group.gpu.refuse_launch = answer;
    const Outcome outcome = outcome_of([&] { submit(*backend, operation(OpKind::kBarrier, 1))->wait(); });
    CHECK(outcome.code == ErrorCode::System);
    CHECK_THAT(outcome.text,
               Contains("#1 barrier") && Contains("NCCL could not launch it: system error (as scripted)"));
    CHECK_THAT(outcome_of([&] { submit(*backend, operation(OpKind::kBarrier, 2))->wait(); }).text,
               Contains("#2 barrier: given up after #1 barrier"));
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: what CUDA refuses before a launch fails the group, too: the peers have the operation", "[nccl]") {
    const bool device_is_lost = GENERATE(false, true);
    FakeGroup group(1);
    const auto backend = group.backend(0);
    group.gpu.frozen_ranks = {0};
    const auto first = submit(*backend, operation(OpKind::kBarrier, 1, 1h));  // has the pool's last event
    device_is_lost ? void(group.gpu.lost_devices = {0}) : void(group.gpu.refuses_events = true);
    const auto work = submit(*backend, operation(OpKind::kBarrier, 2, 1h));
    const Outcome outcome = outcome_of([&] { work->wait(); });
    group.gpu.lost_devices.clear();
    CHECK(outcome.code == ErrorCode::System);
    CHECK_THAT(outcome.text, Contains("#2 barrier") && Contains(device_is_lost ? "cuCtxPushCurrent of CUDA device 0: as"
                                                                               : "cuEventCreate: as"));
    CHECK(backend->failure().has_value());
}

TEST_CASE("nccl: a start to which a rank does not come leaves no unique id behind", "[nccl]") {
    FakeGroup group(2);
    group.init_timeout = 100ms;
    CHECK(outcome_of([&] { (void)group.backend(0); }).code == ErrorCode::Timeout);
    CHECK(group.gpu.counts().unique_ids == 0);
}

TEST_CASE("nccl: an operation that a peer never calls fails at its deadline", "[nccl]") {
    FakeGroup group(2);
    std::promise<void> ended;
    const auto ending = ended.get_future().share();
    const auto outcomes = group.run([&](int rank, BackendImpl& backend) {
        if (rank == 1) return ending.wait();
        std::vector<float> values(3, 1.0f);
        const auto result =
            outcome_of([&] { wait_host(*submit(backend, all_reduce(values, ReduceOp::Max, 1, 150ms))); });
        ended.set_value();
        throw Error(result.code, result.text);
    });
    CHECK(outcomes[0].code == ErrorCode::Timeout);
    CHECK_THAT(outcomes[0].text,
               Contains("#1 all_reduce max f32[3]") && Contains("not done on the device at its deadline"));
    CHECK(outcomes[1].text == "");
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: a callback that takes long delays no deadline, no result and no abort", "[nccl]") {
    FakeGroup group(1);
    group.nccl_version = GENERATE(22602, 22809);
    const auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(3);
    auto wanted = all_reduce(values, ReduceOp::Sum, 1);
    wanted.stream.handle = stream;
    const auto first = submit(*backend, ddp::detail::Operation(wanted));
    std::promise<void> may_return, running;
    first->then([&](const std::exception_ptr&) {
        running.set_value();
        may_return.get_future().wait();
    });
    gate->store(true);
    running.get_future().wait();
    CHECK(outcome_of([&] { wait_host(*submit(*backend, operation(OpKind::kBarrier, 2))); }).text == "");

    group.gpu.frozen_ranks = {0};
    const auto start = ddprun::Clock::now();
    const Outcome outcome = outcome_of([&] { submit(*backend, operation(OpKind::kBarrier, 3, 300ms))->wait(); });
    CHECK(outcome.code == ErrorCode::Timeout);
    CHECK_THAT(outcome.text, Contains("#3 barrier") && Contains("not done on the device at its deadline"));
    CHECK(ddprun::Clock::now() - start < 2s);  // the waiter's own limit is later
    CHECK(group.gpu.counts().aborts == 1);
    may_return.set_value();
}

TEST_CASE("nccl: a later operation with an earlier deadline is found, and the one before it is named", "[nccl]") {
    FakeGroup group(1);
    std::vector<float> values(3, 1.0f);
    const auto backend = group.backend(0);
    group.gpu.frozen_ranks = {0};
    const auto first = submit(*backend, all_reduce(values, ReduceOp::Sum, 1, 1h));
    const auto second = submit(*backend, operation(OpKind::kBarrier, 2, 100ms));
    const Outcome outcome = outcome_of([&] { second->wait(); });
    CHECK(outcome.code == ErrorCode::Timeout);
    CHECK_THAT(outcome.text, Contains("#2 barrier") && Contains("still running is #1 all_reduce sum f32[3]"));
    CHECK_THAT(outcome_of([&] { wait_host(*first); }).text,
               Contains("#1 all_reduce sum f32[3]: given up after #2 barrier"));
}

TEST_CASE("nccl: abort fails what is in flight, says why, and returns at once", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    group.gpu.frozen_ranks = {0};
    const auto work = submit(*backend, operation(OpKind::kBarrier, 1));
    backend->abort("the agent says that node 3 is gone");
    const Outcome outcome = outcome_of([&] { work->wait(); });
    CHECK(outcome.code == ErrorCode::Aborted);
    CHECK_THAT(outcome.text, Contains("#1 barrier") && Contains("node 3 is gone"));
    CHECK(outcome_of([&] { submit(*backend, operation(OpKind::kBarrier, 2))->wait(); }).code == ErrorCode::Aborted);
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: abort ends a call that waits for its peers, and a callback's call behind it", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(3);
    auto wanted = all_reduce(values, ReduceOp::Sum, 1, 1h);
    wanted.stream.handle = stream;
    const auto first = submit(*backend, ddp::detail::Operation(wanted));
    std::promise<std::shared_ptr<detail::WorkState>> called_back;
    first->then([&](const std::exception_ptr&) {
        called_back.set_value(submit(*backend, operation(OpKind::kBarrier, 3, 1h)));
    });
    first->wait();  // it is on the stream
    group.gpu.never_takes_in = true;
    const auto second = submit(*backend, operation(OpKind::kBarrier, 2, 40s));
    REQUIRE(eventually([&] { return group.gpu.counts().launches == 2; }));
    gate->store(true);
    const auto third = called_back.get_future().get();
    CHECK(first->done());  // while NCCL is connecting the second
    backend->abort("enough");
    CHECK(outcome_of([&] { second->wait(); }).code == ErrorCode::Aborted);
    CHECK(outcome_of([&] { third->wait(); }).code == ErrorCode::Aborted);
}

TEST_CASE("nccl: abort without work in flight aborts the communicator too", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    backend->abort("no more");
    CHECK(eventually([&] { return group.gpu.counts().aborts == 1; }));
}

TEST_CASE("nccl: destroying a group fails its operations in flight", "[nccl]") {
    FakeGroup group(1);
    std::vector<float> values(3, 1.0f);
    auto backend = group.backend(0);
    group.gpu.frozen_ranks = {0};
    const auto work = submit(*backend, all_reduce(values, ReduceOp::Sum));
    backend.reset();
    REQUIRE(work->done());
    const Outcome outcome = outcome_of([&] { wait_host(*work); });
    CHECK(outcome.code == ErrorCode::Aborted);
    CHECK_THAT(outcome.text, Contains("the group was destroyed"));
    CHECK(group.gpu.counts().aborts == 1);
    CHECK(group.gpu.counts().destroys == 0);
}

TEST_CASE("nccl: what NCCL cannot do is refused, and the group stays usable", "[nccl]") {
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    std::vector<std::int32_t> values(3, 1);
    const Buffer buffer = device_buffer(values);

    const Outcome host = outcome_of([&] { (void)world.all_gather(values, buffer); });
    CHECK(host.code == ErrorCode::InvalidArgument);
    CHECK_THAT(host.text, Contains("#1 all_gather i32[3]: the input is host memory, and the NCCL backend takes CUDA "
                                   "memory only: copy it to the device (Device::Cuda), or use Backend::Native"));
    const Outcome bitwise = outcome_of([&] { (void)world.all_reduce(buffer, ReduceOp::BitOr); });
    CHECK(bitwise.code == ErrorCode::InvalidArgument);
    CHECK_THAT(bitwise.text, Contains("#1 all_reduce bor i32[3]: NCCL has no band, bor and bxor"));
    std::vector<std::int16_t> small(3, 1);
    CHECK_THAT(outcome_of([&] { (void)world.all_reduce(device_buffer(small), ReduceOp::Sum); }).text,
               Contains("NCCL does not reduce i16; convert to i32"));
    const Outcome rootless = outcome_of([&] { (void)world.broadcast(buffer, 1); });
    CHECK(rootless.code == ErrorCode::InvalidArgument);
    CHECK_THAT(rootless.text, Contains("there is no rank 1 in a group of 1"));
    const std::vector<std::size_t> wrong{4};
    CHECK_THAT(outcome_of([&] { (void)world.gather_v(buffer, buffer, wrong, 0); }).text,
               Contains("the input has 3 elements and needs 4"));

    world.all_reduce(buffer, ReduceOp::Sum).wait_host();
    CHECK(group.gpu.counts().aborts == 0);
    CHECK(group.gpu.counts().launches == 1);
}

TEST_CASE("nccl: an exception aborts the group of a Work in flight, unless the caller's stream waits for it",
          "[nccl]") {
    const bool waited = GENERATE(false, true);
    FakeGroup ranks(1);
    ProcessGroup group = ranks.world(0);
    std::vector<float> values(3, 1.0f);
    ranks.gpu.frozen_ranks = {0};
    std::shared_ptr<detail::WorkState> seen;
    try {
        const Work work = group.all_reduce(device_buffer(values), ReduceOp::Sum);
        seen = detail::WorkState::of(work);
        if (waited) Work(work).wait();  // any handle
        throw std::runtime_error("the loss is nan");
    } catch (const std::runtime_error&) {
    }
    CHECK(seen->done() != waited);
    CHECK(ranks.gpu.counts().aborts == (waited ? 0 : 1));
}

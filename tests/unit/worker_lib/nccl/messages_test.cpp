// What is sends and receives to NCCL, over the fake GPU: transfers, and the failures of collectives that it has no call
// for.

#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Matchers::Contains;

TEST_CASE("nccl: a batch sends to the next rank and receives from the one before, itself too", "[nccl]") {
    const int size = GENERATE(1, 2, 3);
    const std::size_t count = GENERATE(as<std::size_t>{}, 0, 1, 7);
    FakeGroup ranks(size);
    CHECK(ranks.complaints([&](ProcessGroup& group) -> std::string {
        std::vector<std::int32_t> out(count, group.rank());
        std::vector<std::int32_t> in(count, -1);
        const int previous = (group.rank() + group.size() - 1) % group.size();
        TransferBatch batch = group.batch();
        batch.send(device_buffer(out), (group.rank() + 1) % group.size(), 3).recv(device_buffer(in), previous, 3);
        Work work = batch.start();
        work.wait_host();
        return in == std::vector(count, previous) && work.done() ? "" : "something else has come";
    }) == "");
    CHECK(ranks.gpu.counts().launches == (count == 0 ? 0 : size));
    CHECK(ranks.gpu.counts().open_groups == 0);
}

TEST_CASE("nccl: messages between two ranks meet in the order of the calls, among the collectives", "[nccl]") {
    FakeGroup ranks(2);
    CHECK(ranks.complaints([](ProcessGroup& group) -> std::string {
        std::vector<std::int32_t> first(3, 1), second(3, 2), third(3, 3), sum(1, 1);
        if (group.rank() == 0) {
            TransferBatch batch = group.batch();
            batch.send(device_buffer(first), 1, 5).send(device_buffer(second), 1, 5);
            (void)batch.start();
            (void)group.all_reduce(device_buffer(sum), ReduceOp::Sum);
            group.send(device_buffer(third), 1, 6).wait_host();  // another tag, in another batch
            return sum[0] == 2 ? "" : "the sum is wrong";
        }
        std::vector<std::int32_t> got(9, 0);
        const auto part = [&](std::size_t i) { return Buffer{&got[3 * i], 3, DType::I32, Device::Cuda}; };
        (void)group.recv(part(0), 0, 5);
        (void)group.recv(part(1), 0, 5);
        (void)group.all_reduce(device_buffer(sum), ReduceOp::Sum);
        group.recv(part(2), 0, 6).wait_host();
        return got == std::vector{1, 1, 1, 2, 2, 2, 3, 3, 3} ? "" : "they came in another order";
    }) == "");
}

TEST_CASE("nccl: a receive takes its stream's turn, and wait() makes that stream wait", "[nccl]") {
    FakeGroup ranks(1);
    ProcessGroup group = ranks.world(0);
    const CUstream stream = ranks.gpu.make_stream();
    const auto gate = ranks.gpu.close_gate(stream);
    const std::vector<float> computed(4, 5.0f);
    std::vector<float> out(4, 0.0f), in(4, 0.0f), copy(4, 0.0f);
    ranks.gpu.copy(out.data(), computed.data(), 16, stream);
    TransferBatch batch = group.batch();
    batch.send(device_buffer(out), 0).recv(device_buffer(in), 0);
    Work work = batch.start({.stream = {stream}});
    work.wait();  // the host goes on
    ranks.gpu.copy(copy.data(), in.data(), 16, stream);
    CHECK_FALSE(work.done());
    CHECK_FALSE(ranks.gpu.advance(stream));
    gate->store(true);
    work.wait_host();
    CHECK(ranks.gpu.advance(stream));
    CHECK(copy == computed);
}

TEST_CASE("nccl: what it cannot keep apart is refused, and nothing has started", "[nccl]") {
    FakeGroup ranks(1);
    ProcessGroup group = ranks.world(0);
    std::vector<float> a(3), b(3), c(2);
    const auto refusal = [&](auto fill) {
        return outcome_of([&] {
            TransferBatch batch = group.batch();
            fill(batch);
            (void)batch.start();
        });
    };
    const Outcome sends = refusal([&](TransferBatch& batch) {
        batch.send(device_buffer(a), 0, 4).recv(device_buffer(b), 0, 4).send(device_buffer(c), 0, 5);
    });
    CHECK(sends.code == ErrorCode::InvalidArgument);
    CHECK_THAT(sends.text, Contains("p2p #1 send f32[2] to rank 0, tag 5: the batch has a send to that rank of tag 4, "
                                    "too. NCCL has no tags, so it could confuse them. Use one tag for all "
                                    "that a batch sends to a rank (they meet in the order of the calls), or a batch "
                                    "for each tag, in the same order on both ranks. Backend::Native keeps tags apart"));
    CHECK_THAT(
        refusal([&](TransferBatch& batch) { batch.recv(device_buffer(a), 0, 0).recv(device_buffer(b), 0, 1); }).text,
        Contains("recv f32[3] from rank 0, tag 1: the batch has a receive from that rank of tag 0, too"));
    const auto lonely = GENERATE(0, 1, 2);
    CHECK_THAT(refusal([&](TransferBatch& batch) {
                   if (lonely == 0) batch.send(device_buffer(a), 0);
                   if (lonely == 1) batch.recv(device_buffer(a), 0);
                   if (lonely == 2) batch.send(device_buffer(a), 0).recv(device_buffer(c), 0);
               }).text,
               Contains("this is the own rank, and the batch has no ") && Contains("into one batch"));
    CHECK_THAT(refusal([&](TransferBatch& batch) { batch.send(a, 0); }).text,
               Contains("p2p #1 send f32[3] to rank 0, tag 0: the buffer is host memory"));
    CHECK_THAT(refusal([&](TransferBatch& batch) { batch.send(device_buffer(a), 1); }).text,
               Contains("there is no rank 1"));
    CHECK(ranks.gpu.counts().launches == 0);
    TransferBatch both = group.batch();
    both.send(device_buffer(a), 0, 1).recv(device_buffer(b), 0, 1);
    both.start().wait_host();
}

TEST_CASE("nccl: a receive without a send fails at its deadline, and the group with it", "[nccl]") {
    FakeGroup ranks(2);
    std::promise<void> ended;
    const auto ending = ended.get_future().share();
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        if (group.rank() == 1) return ending.wait();
        std::vector<float> values(3);
        const Outcome result = outcome_of(
            [&] { group.recv(device_buffer(values), 1, 2, {.timeout = 150ms, .label = "border"}).wait_host(); });
        const Outcome later = outcome_of([&] { group.barrier().wait(); });
        ended.set_value();
        throw Error(result.code, result.text + " | " + later.text);
    });
    CHECK(outcomes[0].code == ErrorCode::Timeout);
    CHECK_THAT(outcomes[0].text, Contains("p2p #1 recv f32[3] from rank 1, tag 2 'border': rank 0 (host ") &&
                                     Contains("not done on the device at its deadline") &&
                                     Contains("#1 barrier: given up after p2p #1 recv f32[3]"));
    CHECK(outcomes[1].text == "");
    CHECK(ranks.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: a message whose count differs from the receiver's fails at the deadline on both sides", "[nccl]") {
    FakeGroup ranks(2);
    for (const Outcome& outcome : ranks.run_worlds([](ProcessGroup& group) {
             std::vector<float> values(group.rank() == 0 ? 3 : 4);
             const Buffer buffer = device_buffer(values);
             const OpOptions options{.timeout = 200ms};
             (group.rank() == 0 ? group.send(buffer, 1, 0, options) : group.recv(buffer, 0, 0, options)).wait_host();
         })) {
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK_THAT(outcome.text, Contains("p2p #1 "));
    }
}

TEST_CASE("nccl: one of several messages that NCCL refuses costs all of them, and no open group of calls", "[nccl]") {
    FakeGroup ranks(1);
    ProcessGroup group = ranks.world(0);
    std::vector<float> a(3, 1.0f), b(3), c(3), d(3);
    TransferBatch batch = group.batch();
    batch.send(device_buffer(a), 0).recv(device_buffer(b), 0).send(device_buffer(c), 0).recv(device_buffer(d), 0);
    ranks.gpu.good_calls = GENERATE(0, 1, 2, 3);
    ranks.gpu.refuse_launch = GENERATE(ncclSystemError, ncclInvalidArgument);
    const Outcome failed = outcome_of([&] { batch.start().wait_host(); });
    CHECK(failed.code == ErrorCode::System);
    CHECK_THAT(failed.text, Contains("p2p #1 send f32[3] to rank 0, tag 0 and 3 more: rank 0 (host ") &&
                                Contains("NCCL could not launch it"));
    CHECK(ranks.gpu.counts().launches == 0);
    CHECK(ranks.gpu.counts().open_groups == 0);
}

TEST_CASE("nccl: each message of a batch is in the flight record until the batch has ended", "[nccl]") {
    FakeGroup ranks(1);
    const auto backend = ranks.backend(0);
    const auto memory = std::make_unique<ddprun::flight_record::Memory>();
    detail::FlightRecorder recorder(*memory);
    std::vector<float> a(3), b(3);
    detail::TransferList batch;
    batch.transfers.push_back({.sends = true, .buffer = device_buffer(a), .peer = 0});
    batch.transfers.push_back({.sends = false, .buffer = device_buffer(b), .peer = 0});
    batch.seq = 1;
    batch.deadline = ddprun::Clock::now() + 20s;
    const CUstream stream = ranks.gpu.make_stream();
    const auto gate = ranks.gpu.close_gate(stream);
    batch.stream.handle = stream;
    const auto group_index = add_group(recorder, ranks.spec(0));
    claim_entries(recorder, batch, group_index);
    record(batch, group_index, ddprun::Clock::now());
    const auto work = transfer(*backend, batch);
    const auto ended = [&](std::size_t i) { return memory->operations[i].ended.load() != 0; };
    CHECK((!ended(1) && !ended(2)));
    work->note_waiter(true);
    CHECK(memory->operations[1].waited.load() != 0);
    CHECK(memory->operations[2].waited.load() != 0);
    gate->store(true);
    wait_host(*work);
    CHECK((ended(1) && ended(2)));
}

TEST_CASE("nccl: one of several calls that NCCL refuses ends their group, and none of them has begun", "[nccl]") {
    const int good_calls = GENERATE(0, 1, 2, 3);  // of two sends and two receives
    FakeGroup group(2);
    auto peer = std::async(std::launch::async, [&] { return group.world(1); });  // it only connects
    ProcessGroup world = group.world(0);
    const ProcessGroup other = peer.get();
    std::vector<float> in(2, 1.0f), out(2, 0.0f);
    group.gpu.good_calls = good_calls;
    group.gpu.refuse_launch = ncclSystemError;
    const Outcome outcome = outcome_of([&] { world.all_to_all(device_buffer(in), device_buffer(out)).wait_host(); });
    CHECK(outcome.code == ErrorCode::System);
    CHECK_THAT(outcome.text, Contains("#1 all_to_all f32[2]") && Contains("NCCL could not launch it"));
    CHECK(group.gpu.counts().open_groups == 0);
    CHECK(group.gpu.counts().launches == 0);
}

TEST_CASE("nccl: calls that NCCL never launches end at the operation's deadline, or by an abort", "[nccl]") {
    const bool aborts = GENERATE(false, true);
    FakeGroup group(1);
    ProcessGroup world = group.world(0);
    std::vector<float> in(2, 1.0f), out(2, 0.0f), other_values(1);
    const bool after_another = GENERATE(false, true);
    Work earlier;
    if (after_another) {
        group.gpu.frozen_ranks = {0};
        earlier = world.all_reduce(device_buffer(other_values), ReduceOp::Sum);
        earlier.wait();  // it is on the stream
    }
    group.gpu.never_takes_in = true;
    auto other = std::async(std::launch::async, [&] {
        const auto entered = [&] { return group.gpu.counts().launches == (after_another ? 2 : 1); };
        if (aborts && eventually(entered)) world.abort("enough");
    });
    const OpOptions options{.timeout = aborts ? 60s : 200ms};
    const auto start = ddprun::Clock::now();
    const Outcome outcome =
        outcome_of([&] { world.all_to_all(device_buffer(in), device_buffer(out), options).wait_host(); });
    other.get();
    CHECK(ddprun::Clock::now() - start < 30s);
    CHECK(outcome.code == (aborts ? ErrorCode::Aborted : ErrorCode::Timeout));
    CHECK_THAT(outcome.text,
               Contains(after_another ? "#2 all_to_all f32[2]" : "#1 all_to_all f32[2]") &&
                   Contains(aborts ? "aborted: enough" : "NCCL was still connecting to its peers at its deadline"));
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: ranks whose counts do not fit together fail at the deadline, on both sides", "[nccl]") {
    FakeGroup group(2);
    const auto outcomes = group.run_worlds([&](ProcessGroup& world) {
        std::vector<float> in(5, 1.0f), out(5, 0.0f);
        const std::vector<std::size_t> counts{2, 3};  // rank 1 sends 2 to rank 0, which expects 3
        world.all_to_all_v(device_buffer(in), counts, device_buffer(out), counts, {.timeout = 300ms}).wait_host();
    });
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK_THAT(outcome.text, Contains("#1 all_to_all_v f32: rank "));
    }
}

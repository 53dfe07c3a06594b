// The NCCL backend over the fake GPU, when nothing goes wrong.

#include <pthread.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/types.hpp"
#include "worker_lib/src/nccl/unique_id.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Contains;
using detail::BackendImpl;
using detail::OpKind;

namespace {

/// Returns which signals each thread of this process blocks, by the thread's name.
std::map<std::string, std::uint64_t> blocked_signals() {
    std::map<std::string, std::uint64_t> blocked;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(thread.path() / "status");
        std::string word;
        std::string name;
        while (status >> word) {
            if (word == "Name:") status >> name;
            if (word == "SigBlk:") status >> std::hex >> blocked[name];
        }
    }
    return blocked;
}

bool has(std::uint64_t signals, int signal) { return (signals >> (signal - 1) & 1U) != 0; }

}  // namespace

TEST_CASE("nccl: no signal is delivered to the backend's threads", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    auto blocked = blocked_signals();
    for (const char* name : {"ddp-watchdog", "ddp-nccl", "ddp-callbacks"}) {
        CAPTURE(name);
        REQUIRE(blocked.contains(name));
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) CHECK(has(blocked[name], signal));
    }
    bool is_blocked = false;
    REQUIRE(detail::run_bounded(
        [&] {
            sigset_t now;
            ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
            is_blocked = ::sigismember(&now, SIGTERM) == 1;
        },
        ddprun::Clock::now() + 20s));
    CHECK(is_blocked);
}

TEST_CASE("nccl: all ranks get the unique id that rank 0 made", "[nccl]") {
    FakeGroup group(4);
    std::vector<std::string> ids(4);
    require_success(group.run({3, 1, 0, 2}, [&](int rank) {
        const auto found =
            detail::exchange_unique_ids(group.gpu.api().nccl, group.spec(rank), ddprun::Clock::now() + 20s);
        ids[static_cast<std::size_t>(rank)] = found.ids.size() == 1 ? found.ids[0].internal : "several";
    }));
    CHECK(ids == std::vector<std::string>(4, "id 1"));
    CHECK(group.gpu.counts().unique_ids == 1);
}

TEST_CASE("nccl: a large group has one unique id for at most 128 ranks, each made by the first rank that uses it",
          "[nccl]") {
    const FakeGpu gpu;
    const auto nccl = gpu.api().nccl;
    CHECK(detail::unique_id_count(nccl, 1) == 1);
    CHECK(detail::unique_id_count(nccl, 128) == 1);
    CHECK(detail::unique_id_count(nccl, 129) == 2);
    CHECK(detail::unique_id_count(nccl, 1024) == 8);
    CHECK(detail::unique_id_count(NcclApi{}, 1024) == 1);
    const int ranks = GENERATE(1, 2, 128, 129, 130, 255, 257, 1000, 1024, 20'000);
    const int ids = detail::unique_id_count(nccl, ranks);
    CAPTURE(ranks, ids);
    // NCCL's own rule (rankHasRoot, in its user guide): the first ids have one rank more.
    const int longer = ranks % ids, fewer = ranks / ids, limit = longer * (fewer + 1);
    std::vector<int> makers;
    for (int rank = 0; rank < ranks; ++rank) {
        const bool is_first = rank < limit ? rank % (fewer + 1) == 0 : (rank - limit) % fewer == 0;
        if (is_first) makers.push_back(rank);
    }
    REQUIRE(makers.size() == static_cast<std::size_t>(ids));
    for (int index = 0; index < ids; ++index)
        CHECK(detail::maker_of_id(index, ids, ranks) == makers[static_cast<std::size_t>(index)]);
}

TEST_CASE("nccl: a group of more than 128 ranks starts with several unique ids, or with one in an older NCCL",
          "[nccl]") {
    constexpr int kRanks = 131;
    const bool scalable = GENERATE(true, false);
    CAPTURE(scalable);
    FakeGroup group(kRanks);
    group.gpu.devices = kRanks;
    group.gpu.has_scalable = scalable;
    group.init_timeout = 60s;
    group.limits.finish_timeout = 20s;
    std::vector<std::vector<std::int32_t>> sums(kRanks);
    require_success(group.run([&](int rank, BackendImpl& backend) {
        std::vector<std::int32_t> sum(1, rank);
        wait_host(*submit(backend, all_reduce(sum, ReduceOp::Sum, 1, 60s)));
        sums[static_cast<std::size_t>(rank)] = sum;
    }));
    for (const auto& sum : sums) CHECK(sum == std::vector<std::int32_t>{kRanks * (kRanks - 1) / 2});
    CHECK(group.gpu.counts().unique_ids == (scalable ? 2 : 1));
    require_nothing_left(group);
}

TEST_CASE("nccl: a rank that cannot make its unique id is named by all", "[nccl]") {
    FakeGroup group(131);
    group.gpu.unique_id_fails = true;
    const auto outcomes = group.run(group.spec(0).members, [&](int rank) {
        (void)detail::exchange_unique_ids(group.gpu.api().nccl, group.spec(rank), ddprun::Clock::now() + 60s);
    });
    for (const Outcome& outcome : outcomes) {
        REQUIRE(outcome.code == ErrorCode::System);
        CHECK(outcome.culprits == std::vector<int>{0});
        CHECK_THAT(outcome.text, Contains("ncclGetUniqueId on rank 0: system error"));
    }
}

TEST_CASE("nccl: all_reduce reduces over all ranks, whatever the count", "[nccl]") {
    const int size = GENERATE(1, 2, 4);
    const std::size_t count = GENERATE(as<std::size_t>{}, 0, 1, 3, 4, 5, 1001);
    CAPTURE(size, count);
    FakeGroup group(size);
    std::vector<std::vector<std::int32_t>> sums(static_cast<std::size_t>(size));
    std::vector<std::vector<float>> averages(static_cast<std::size_t>(size));
    require_success(group.run([&](int rank, BackendImpl& backend) {
        std::vector<std::int32_t> sum(count, rank + 1);
        std::vector<float> average(count, static_cast<float>(rank));
        const auto first = submit(backend, all_reduce(sum, ReduceOp::Sum, 1));
        const auto second = submit(backend, all_reduce(average, ReduceOp::Avg, 2));
        wait_host(*second);
        wait_host(*first);
        sums[static_cast<std::size_t>(rank)] = sum;
        averages[static_cast<std::size_t>(rank)] = average;
    }));
    for (const auto& sum : sums) CHECK(sum == std::vector<std::int32_t>(count, size * (size + 1) / 2));
    for (const auto& average : averages) CHECK(average == std::vector<float>(count, static_cast<float>(size - 1) / 2));
    require_nothing_left(group);
}

TEST_CASE("nccl: minimum, maximum and product are NCCL's", "[nccl]") {
    FakeGroup group(3);
    std::vector<std::int32_t> results(3);
    require_success(group.run([&](int rank, BackendImpl& backend) {
        std::vector<std::int32_t> low{rank + 2}, high{rank + 2}, product{rank + 2};
        (void)submit(backend, all_reduce(low, ReduceOp::Min, 1));
        (void)submit(backend, all_reduce(high, ReduceOp::Max, 2));
        wait_host(*submit(backend, all_reduce(product, ReduceOp::Product, 3)));
        results[static_cast<std::size_t>(rank)] = low[0] * 10'000 + high[0] * 1000 + product[0];
    }));
    CHECK(results == std::vector<std::int32_t>(3, 24'024));
}

TEST_CASE("nccl: every type and reduction of ours is one of NCCL's, except the bitwise ones", "[nccl]") {
    CHECK(detail::to_nccl(DType::BF16) == ncclBfloat16);
    CHECK(detail::to_nccl(DType::U64) == ncclUint64);
    for (const ReduceOp op : {ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor})
        CHECK(detail::to_nccl(op, DType::I32, 2) == std::nullopt);
    CHECK(detail::to_nccl(ReduceOp::Avg, DType::F32, 2) == ncclAvg);
    CHECK(detail::to_nccl(ReduceOp::Avg, DType::F32, 1) == ncclSum);  // the same, and not subject to NCCL's rounding
}

TEST_CASE("nccl: broadcast gives everybody root's values", "[nccl]") {
    const int root = GENERATE(0, 1, 2);
    FakeGroup group(3);
    std::vector<std::vector<float>> results(3);
    require_success(group.run([&](int rank, BackendImpl& backend) {
        std::vector<float> values(7, static_cast<float>(rank));
        auto wanted = operation(OpKind::kBroadcast, 1);
        wanted.buffer = device_buffer(values);
        wanted.root = root;
        wait_host(*submit(backend, ddp::detail::Operation(wanted)));
        results[static_cast<std::size_t>(rank)] = values;
    }));
    CHECK(results == std::vector<std::vector<float>>(3, std::vector<float>(7, static_cast<float>(root))));
}

TEST_CASE("nccl: waiting for a barrier blocks the host until the last rank has called it", "[nccl]") {
    FakeGroup group(3);
    std::atomic<int> called = 0;
    std::vector<int> seen(3);
    require_success(group.run([&](int rank, BackendImpl& backend) {
        called += 1;
        submit(backend, operation(OpKind::kBarrier, 1))->wait();
        seen[static_cast<std::size_t>(rank)] = called;
    }));
    CHECK(seen == std::vector<int>(3, 3));
}

TEST_CASE("nccl: a collective waits for the caller's stream, and wait() lets that stream wait, not the host",
          "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const std::vector<float> computed(4, 5.0f);
    std::vector<float> values(4, 0.0f), copy(4, 0.0f);

    // On the caller's stream: a long kernel (the gate), then the values that are to be reduced.
    const auto gate = group.gpu.close_gate(stream);
    group.gpu.copy(values.data(), computed.data(), 16, stream);
    auto wanted = all_reduce(values, ReduceOp::Sum);
    wanted.stream.handle = stream;
    const auto work = submit(*backend, ddp::detail::Operation(wanted));
    work->wait();
    group.gpu.copy(copy.data(), values.data(), 16, stream);

    CHECK_FALSE(work->done());
    CHECK_FALSE(group.gpu.advance(stream));
    CHECK(copy == std::vector<float>(4, 0.0f));
    gate->store(true);
    wait_host(*work);
    CHECK(group.gpu.advance(stream));
    CHECK(copy == computed);
}

TEST_CASE("nccl: wait() on a stream of a caller orders it behind the peers", "[nccl]") {
    FakeGroup group(2);
    std::atomic<bool> first_went_on = false, too_early = false;
    require_success(group.run([&](int rank, BackendImpl& backend) {
        std::vector<float> values(1, 1.0f);
        auto wanted = all_reduce(values, ReduceOp::Sum);
        const CUstream stream = group.gpu.make_stream();
        wanted.stream.handle = stream;
        if (rank == 1 && !eventually([&] { return first_went_on.load(); }))
            throw Error(ErrorCode::Timeout, "rank 0 is stuck");
        const auto work = submit(backend, ddp::detail::Operation(wanted));
        work->wait();
        if (rank == 0) {
            too_early = group.gpu.advance(stream);  // rank 1 has not even called
            first_went_on = true;
        }
        wait_host(*work);
    }));
    CHECK_FALSE(too_early);
}

TEST_CASE("nccl: an operation is recorded as started when the device has come to it", "[nccl]") {
    const auto memory = std::make_unique<ddprun::flight_record::Memory>();
    detail::FlightRecorder recorder(*memory);
    FakeGroup group(2);
    const detail::GroupEntry entry = detail::add_group(recorder, group.spec(0));
    const auto kind = GENERATE(detail::OpKind::kAllReduce, detail::OpKind::kBarrier);
    auto other = std::async(std::launch::async, [&] { return group.backend(1); });
    const auto backend = group.backend(0);
    const auto peer = other.get();
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(3), others(3);
    const auto wanted = [&](std::vector<float>& memory_of_rank, std::uint64_t seq) {
        auto made = all_reduce(memory_of_rank, ReduceOp::Sum, seq);
        made.kind = kind;
        return made;
    };
    auto held = wanted(values, 1);
    held.stream.handle = stream;
    auto next = wanted(values, 2);
    for (detail::Operation* one : {&held, &next})
        one->record_entry = detail::record(*one, recorder.claim(), entry, ddprun::Clock::now());
    const auto first = submit(*backend, std::move(held));
    const auto second = submit(*backend, std::move(next));
    const auto queries = group.gpu.counts().queries;
    REQUIRE(eventually([&] { return group.gpu.counts().queries > queries + 10; }));
    CHECK(entry.slot->started == 0);

    gate->store(true);  // the device comes to the first one, which waits for the other rank there
    REQUIRE(eventually([&] { return entry.slot->started == 1; }));
    CHECK(entry.slot->done == 0);
    const auto peer_first = submit(*peer, wanted(others, 1));
    REQUIRE(eventually([&] { return entry.slot->started == 2; }));
    CHECK(entry.slot->done == 1);
    const auto peer_second = submit(*peer, wanted(others, 2));
    wait_host(*second);
    CHECK(entry.slot->done == 2);
}

TEST_CASE("nccl: callbacks run once, when the work has ended", "[nccl]") {
    FakeGroup group(1);
    const auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(1, 1.0f);
    auto wanted = all_reduce(values, ReduceOp::Sum);
    wanted.stream.handle = stream;
    std::atomic<int> calls = 0;
    const auto work = submit(*backend, ddp::detail::Operation(wanted));
    work->then([&](const std::exception_ptr& error) { calls += error ? 100 : 1; });
    CHECK(calls == 0);
    gate->store(true);
    CHECK(eventually([&] { return calls > 0; }));
    CHECK(calls == 1);
}

TEST_CASE("nccl: a callback may have its stream wait for the group, not the host, and what it throws aborts the group",
          "[nccl]") {
    FakeGroup group(1);
    group.nccl_version = GENERATE(22602, 22809);
    const auto backend = group.backend(0);
    const CUstream streams[] = {group.gpu.make_stream(), group.gpu.make_stream()};
    const std::vector gates{group.gpu.close_gate(streams[0]), group.gpu.close_gate(streams[1])};
    std::vector<float> values(3);
    std::vector<std::shared_ptr<detail::WorkState>> works;
    for (const std::size_t i : {0, 1}) {
        auto wanted = all_reduce(values, ReduceOp::Sum, i + 1);
        wanted.stream.handle = streams[i];
        works.push_back(submit(*backend, std::move(wanted)));
    }
    std::atomic<bool> stream_waits = false;
    works[0]->then([&](const std::exception_ptr&) {
        detail::WorkState::handle(works[1]).wait();
        stream_waits = true;
        detail::WorkState::handle(works[1]).wait_host();
    });
    gates[0]->store(true);
    REQUIRE(eventually([&] { return backend->failure().has_value(); }));
    CHECK(stream_waits);
    CHECK(backend->failure()->code() == ErrorCode::Aborted);
    CHECK_THAT(backend->failure()->what(),
               Contains("aborted: a callback of #1 all_reduce") && Contains("wait_host() inside a callback of group"));
    gates[1]->store(true);
    (void)outcome_of([&] { wait_host(*works[1]); });  // until then it may use its buffer
}

TEST_CASE("nccl: a group may be destroyed inside a callback of its own: it ends when that has returned", "[nccl]") {
    FakeGroup group(1);
    group.nccl_version = GENERATE(22602, 22809);  // as above
    std::optional<ProcessGroup> world(group.world(0));
    const CUstream streams[] = {group.gpu.make_stream(), group.gpu.make_stream()};
    const std::vector gates{group.gpu.close_gate(streams[0]), group.gpu.close_gate(streams[1])};
    std::vector<float> values(3);
    const auto start = [&](std::size_t i) {
        Stream stream;
        stream.handle = streams[i];
        return world->all_reduce(device_buffer(values), ReduceOp::Sum, {.stream = stream});
    };
    std::atomic<bool> destroyed = false;
    {
        Work first = start(0);
        Work second = start(1);
        first.then([&](const std::exception_ptr&) {
            world.reset();
            destroyed = true;
        });
        gates[0]->store(true);
        REQUIRE(eventually([&] { return destroyed.load(); }));
        REQUIRE(eventually([&] { return group.gpu.counts().aborts == 1; }));
        gates[1]->store(true);
        CHECK(outcome_of([&] { second.wait_host(); }).code == ErrorCode::Aborted);
    }
    CHECK(eventually([&] { return group.gpu.counts().streams + group.gpu.counts().blocks == 0; }));
}

TEST_CASE("nccl: a callback's call that stays in NCCL ends at its deadline, by an abort, and with the group",
          "[nccl]") {
    const auto how = GENERATE(as<std::string>(), "deadline", "abort", "destruction");
    FakeGroup group(1);
    std::promise<std::shared_ptr<detail::WorkState>> called;
    auto second = called.get_future();
    auto backend = group.backend(0);
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(3);
    auto wanted = all_reduce(values, ReduceOp::Sum);
    wanted.stream.handle = stream;
    const auto first = submit(*backend, std::move(wanted));
    first->then([&, &own = *backend](const std::exception_ptr&) {
        called.set_value(submit(own, operation(OpKind::kBarrier, 2, how == "deadline" ? 100ms : 40s)));
    });
    first->wait();  // it is on the stream
    group.gpu.never_takes_in = true;
    gate->store(true);
    REQUIRE(eventually([&] { return group.gpu.counts().launches == 2; }));
    if (how == "abort") backend->abort("enough");
    if (how == "destruction") backend.reset();
    REQUIRE(second.wait_for(10s) == std::future_status::ready);
    CHECK(outcome_of([&] { second.get()->wait(); }).code ==
          (how == "deadline" ? ErrorCode::Timeout : ErrorCode::Aborted));
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: an exception in a launch is the error of its operation, and fails the group", "[nccl]") {
    FakeGroup group(1);
    auto api = group.gpu.api();
    api.nccl.broadcast = [](const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t,
                            CUstream) -> ncclResult_t { throw std::bad_alloc(); };
    const auto backend = detail::make_nccl_backend(group.spec(0), api, group.limits);
    std::vector<float> values(3);
    auto wanted = operation(OpKind::kBroadcast, 1);
    wanted.buffer = device_buffer(values);
    const Outcome outcome = outcome_of([&] { wait_host(*submit(*backend, std::move(wanted))); });
    CHECK(outcome.code == ErrorCode::System);
    CHECK_THAT(outcome.text, Contains("#1 broadcast") && Contains("bad_alloc"));
    CHECK(backend->failure().has_value());
}

TEST_CASE("nccl: arena memory is zeroed and freed with the group", "[nccl]") {
    FakeGroup group(1);
    {
        const auto backend = group.backend(0);
        const auto* memory = static_cast<const unsigned char*>(backend->arena().allocate(1000));
        CHECK(std::all_of(memory, memory + 1000, [](unsigned char byte) { return byte == 0; }));
        CHECK(backend->arena().allocate(0) != nullptr);
    }
    require_nothing_left(group);
}

TEST_CASE("nccl: a group that an exception ends does not wait for its peers", "[nccl]") {
    FakeGroup group(2);
    group.limits.finish_timeout = 600s;
    const auto peer = std::async(std::launch::async, [&] { return group.backend(1); });
    try {
        const auto backend = group.backend(0);
        throw std::runtime_error("of the program");
    } catch (const std::runtime_error&) {
    }
    CHECK(group.gpu.counts().aborts == 1);
    CHECK(group.gpu.counts().destroys == 0);
}

TEST_CASE("nccl: a group that ends in order is finalized, never aborted", "[nccl]") {
    FakeGroup group(2);
    std::vector<std::shared_ptr<detail::WorkState>> works(2);
    require_success(group.run([&](int rank, BackendImpl& backend) {
        works[static_cast<std::size_t>(rank)] = submit(backend, operation(OpKind::kBarrier, 1));
        works[static_cast<std::size_t>(rank)]->wait();
    }));
    CHECK(group.gpu.counts().destroys == 2);
    CHECK(group.gpu.counts().aborts == 0);
    CHECK(works[0]->done());  // a work may outlive its group
    works[0]->wait();
    works.clear();
    require_nothing_left(group);
}

TEST_CASE("nccl: communicators do not block, except up to NCCL 2.26, which has faults in that mode", "[nccl]") {
    const int version = GENERATE(21803, 22602, 22703, 22809);
    FakeGroup group(2);
    group.nccl_version = version;
    require_success(
        group.run([](int, BackendImpl& backend) { submit(backend, operation(OpKind::kBarrier, 1))->wait(); }));
    CHECK(group.gpu.counts().blocking_inits == (version < 22700 ? 2 : 0));
    CHECK(detail::starts_nonblocking(22602, "0"));  // NCCL_COMM_BLOCKING
    CHECK_FALSE(detail::starts_nonblocking(22809, "1"));
}

// The device queue over the fake GPU: one order and one thread for all groups of a device, and how they fail together.

#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Matchers::Contains;
using detail::BackendImpl;
using detail::OpKind;

namespace {

std::shared_ptr<detail::WorkState> sum_on(CUstream stream, BackendImpl& backend, std::vector<float>& values,
                                          ddprun::Duration timeout = 20s) {
    auto wanted = all_reduce(values, ReduceOp::Sum, 1, timeout);
    wanted.stream.handle = stream;
    return submit(backend, std::move(wanted));
}

bool passes(ddprun::Duration time) {
    const auto start = ddprun::Clock::now();
    return eventually([&] { return ddprun::Clock::now() - start > time; });
}

}  // namespace

TEST_CASE("nccl: all groups of a device are launched by one thread of the library, in the order of the calls",
          "[nccl]") {
    FakeGroup group(1);
    const auto world = group.backends(), other = group.backends("other", detail::make_local_store());
    std::vector<std::string> expected;
    std::vector<float> values(1);
    std::shared_ptr<detail::WorkState> last;
    for (std::uint64_t seq = 1; seq <= 30; ++seq) {
        const bool first = seq % 3 == 0;  // some follow one of their own group
        expected.emplace_back(first ? "id 1" : "id 2");
        last = submit(*(first ? world : other)[0], all_reduce(values, ReduceOp::Sum, seq));
    }
    wait_host(*last);
    CHECK(group.gpu.launch_order() == expected);
    CHECK(group.gpu.launch_threads().size() == 1);
    CHECK_FALSE(group.gpu.launch_threads().contains(std::this_thread::get_id()));
}

TEST_CASE("nccl: a communicator has run a barrier before it is handed out", "[nccl]") {
    FakeGroup group(2);
    const auto backends = group.backends();
    CHECK(group.gpu.counts().warm_ups == 2);
    CHECK(group.gpu.counts().launches == 0);
}

TEST_CASE("nccl: wait() returns when its operation has been launched, and the stream waits for the end", "[nccl]") {
    FakeGroup group(2);
    const auto backends = group.backends();
    const CUstream stream = group.gpu.make_stream();
    std::vector<float> values(1), others(1);
    group.gpu.never_takes_in = true;
    const auto work = sum_on(stream, *backends[0], values);
    auto waiting = std::async(std::launch::async, [&] { return outcome_of([&] { work->wait(); }); });
    CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
    group.gpu.never_takes_in = false;
    CHECK(waiting.get().text == "");
    CHECK_FALSE(group.gpu.advance(stream));  // the other rank has not called it
    wait_host(*sum_on(nullptr, *backends[1], others));
    wait_host(*work);
    CHECK(group.gpu.advance(stream));
}

TEST_CASE("nccl: a call that waits for its peers holds the queue of the device until its deadline", "[nccl]") {
    const bool holder_is_late = GENERATE(false, true);  // else the operation behind it
    FakeGroup group(1);
    group.limits.shared_timeout = 20s;
    const auto world = group.backends(), other = group.backends("other", detail::make_local_store());
    std::vector<float> values(1);
    group.gpu.never_takes_in = true;
    const auto first = sum_on(nullptr, *world[0], values, holder_is_late ? 300ms : 20s);
    const auto second = sum_on(nullptr, *other[0], values, holder_is_late ? 20s : 300ms);
    const Outcome late = outcome_of([&] { wait_host(*(holder_is_late ? first : second)); });
    CHECK(late.code == ErrorCode::Timeout);
    CHECK_THAT(late.text, Contains(holder_is_late ? "NCCL was still connecting to its peers at its deadline"
                                                  : "not launched at its deadline, behind #1 all_reduce sum f32[1] of "
                                                    "group 'world', which NCCL is still connecting"));
    group.gpu.never_takes_in = false;
    CHECK(outcome_of([&] { wait_host(*(holder_is_late ? second : first)); }).text == "");
}

TEST_CASE("nccl: groups of one device fail together, unless the user aborts one or an operation ends by itself",
          "[nccl]") {
    const auto how = GENERATE(as<std::string>(), "deadline", "deadline, other ends", "abort");
    CAPTURE(how);
    FakeGroup group(2);
    if (how == "deadline, other ends") group.limits.shared_timeout = 10s;  // the machine may be busy
    const auto worlds = group.backends(), reducers = group.backends("reducer", detail::make_local_store());
    const auto &world = worlds[0], &reducer = reducers[0], &peer_reducer = reducers[1];
    std::vector<float> values(3), others(3), peer_values(3);
    const auto second = submit(*reducer, all_reduce(others, ReduceOp::Sum, 1, 20s));
    const auto first = submit(*world, all_reduce(values, ReduceOp::Sum, 1, 300ms));
    if (how == "abort") world->abort("enough");
    CHECK(outcome_of([&] { wait_host(*first); }).code == (how == "abort" ? ErrorCode::Aborted : ErrorCode::Timeout));
    const auto failed = ddprun::Clock::now();
    if (how == "deadline") {
        const Outcome outcome = outcome_of([&] { wait_host(*second); });
        CHECK(ddprun::Clock::now() - failed < 1s);
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK_THAT(outcome.text, Contains("in group 'reducer': another group of this device has failed") &&
                                     Contains("in group 'world': not done on the device at its deadline"));
        CHECK(peer_reducer->failure() == std::nullopt);  // it has no operation in flight, and is on another device
        CHECK(group.gpu.counts().aborts == 2);
        return;
    }
    if (how == "abort") REQUIRE(eventually([&] { return ddprun::Clock::now() - failed > 700ms; }));
    const auto last = submit(*peer_reducer, all_reduce(peer_values, ReduceOp::Sum, 1, 20s));
    CHECK(outcome_of([&] { wait_host(*second); }).text == "");
    CHECK(outcome_of([&] { wait_host(*last); }).text == "");
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: groups that wait for each other by a stream fail within a second of the first", "[nccl]") {
    FakeGroup group(2);
    const auto world = group.backends(), other = group.backends("other", detail::make_local_store());
    const CUstream stream = group.gpu.make_stream();
    std::vector<float> values(1);
    const auto first = sum_on(stream, *world[0], values, 300ms);  // rank 1 calls neither
    first->wait();
    const auto second = sum_on(stream, *other[0], values, 1h);
    CHECK(outcome_of([&] { wait_host(*first); }).code == ErrorCode::Timeout);
    const auto failed = ddprun::Clock::now();
    CHECK(outcome_of([&] { wait_host(*second); }).code == ErrorCode::Timeout);
    CHECK(ddprun::Clock::now() - failed < 5s);  // 0.55 s on an idle machine
    CHECK(group.gpu.counts().aborts == 2);
}

TEST_CASE("nccl: a deadline missed on host memory concerns no other group", "[nccl]") {
    FakeGroup group(2);
    group.limits.shared_timeout = 50ms;
    const auto world = group.backends(), other = group.backends("other", detail::make_local_store());
    std::vector<float> values(1), others(1);
    const auto slow = sum_on(nullptr, *other[0], values);
    world[0]->fail(Error(ErrorCode::Timeout, "group 'world (host)': rank 1 has not called barrier"));
    REQUIRE(passes(500ms));
    CHECK_FALSE(other[0]->failure().has_value());
    wait_host(*sum_on(nullptr, *other[1], others));
    CHECK(outcome_of([&] { wait_host(*slow); }).text == "");
}

TEST_CASE("nccl: an operation that begins long after the failure of another group may take its time", "[nccl]") {
    FakeGroup group(2);
    group.limits.shared_timeout = 100ms;
    group.limits.abort_timeout = 1h;
    const auto world = group.backends(), other = group.backends("other", detail::make_local_store());
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(1), others(1);
    const auto held = sum_on(stream, *other[0], values);
    CHECK(outcome_of([&] { wait_host(*sum_on(nullptr, *world[0], values, 100ms)); }).code == ErrorCode::Timeout);
    REQUIRE(passes(1300ms));  // longer than a victim may wait
    gate->store(true);
    REQUIRE(passes(500ms));  // on the device, and rank 1 is late
    wait_host(*sum_on(nullptr, *other[1], others));
    CHECK(outcome_of([&] { wait_host(*held); }).text == "");
}

TEST_CASE("nccl: a group that ends when its results are there is not aborted", "[nccl]") {
    FakeGroup group(1);
    auto backends = group.backends();
    const CUstream stream = group.gpu.make_stream();
    std::vector<float> values(1);
    std::shared_ptr<detail::WorkState> last;
    for (int i = 0; i < 20; ++i) {
        last = sum_on(stream, *backends[0], values);
        last->wait();
    }
    REQUIRE(eventually([&] { return group.gpu.advance(stream); }));  // as cudaStreamSynchronize
    backends.clear();
    CHECK(outcome_of([&] { wait_host(*last); }).text == "");
    CHECK(group.gpu.counts().aborts == 0);
}

TEST_CASE("nccl: a group is not aborted because of what the device answered before its end", "[nccl]") {
    FakeGroup group(1);
    const CUstream stream = group.gpu.make_stream();
    for (int i = 0; i < 20; ++i) {  // two threads race for the lock after the answer
        auto backends = group.backends(std::to_string(i), detail::make_local_store());
        const auto gate = group.gpu.close_gate(stream);
        std::vector<float> values(1);
        const auto work = sum_on(stream, *backends[0], values);
        work->wait();
        group.gpu.answers_late = true;
        REQUIRE(eventually([&] { return group.gpu.blocked() == 1; }));  // the queue knows that it goes on
        gate->store(true);
        REQUIRE(eventually([&] { return group.gpu.advance(stream); }));  // as cudaStreamSynchronize
        auto ending = std::async(std::launch::async, [&] { backends.clear(); });
        CHECK(ending.wait_for(10ms) == std::future_status::timeout);
        group.gpu.answer();
        ending.get();
        CHECK(outcome_of([&] { wait_host(*work); }).text == "");
    }
    CHECK(group.gpu.counts().aborts == 0);
}

TEST_CASE("nccl: where NCCL can revoke a communicator, that comes before its abort", "[nccl]") {
    FakeGroup group(1);
    group.gpu.has_revoke = GENERATE(false, true);
    const auto backends = group.backends();
    group.gpu.frozen_ranks = {0};
    const auto work = submit(*backends[0], operation(OpKind::kBarrier, 1));
    backends[0]->abort("enough");
    CHECK(outcome_of([&] { wait_host(*work); }).code == ErrorCode::Aborted);
    CHECK(group.gpu.counts().revokes == (group.gpu.has_revoke ? 1 : 0));
    CHECK(group.gpu.counts().aborts == 1);
}

TEST_CASE("nccl: a process whose device does not let go of a failed group ends with its code", "[nccl]") {
    const auto stuck = GENERATE(as<std::string>(), "abort", "kernel", "query", "call");
    CAPTURE(stuck);
    FakeGroup group(1);
    group.limits.abort_timeout = 200ms;
    if (stuck == "call") group.nccl_version = 22602;  // it stays in NCCL
    auto backends = group.backends();
    if (stuck == "call") group.gpu.never_takes_in = true;
    group.gpu.frozen_ranks = {0};
    group.gpu.abort_blocks = stuck == "abort";
    group.gpu.abort_leaves_kernels = stuck == "kernel";
    std::vector<float> values(1);
    const auto work = sum_on(nullptr, *backends[0], values, 150ms);
    group.gpu.query_blocks = stuck == "query";
    const Outcome outcome = outcome_of([&] { wait_host(*work); });
    CHECK(outcome.code == ErrorCode::Timeout);
    const bool in_call = stuck == "call" || stuck == "query";
    CHECK_THAT(outcome.text, Contains(in_call ? "; and a call of NCCL or CUDA did not return within "
                                              : "; and ncclCommAbort did not return within ") &&
                                 Contains(" s, so this process ends"));
    backends.clear();
    REQUIRE(eventually([&] { return !group.last_lines().empty(); }));
    const auto lines = group.last_lines();
    CHECK(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("at its deadline") && Contains("; after that ") && Contains("in group 'world'") &&
                             Contains("CUDA device 0 does not answer, and this process ends with code 71"));
}

TEST_CASE("nccl: an abort waits for work of the program that comes before the operation on the device", "[nccl]") {
    const bool in_time = GENERATE(false, true);
    FakeGroup group(1);
    group.limits.abort_timeout = 100ms;
    group.limits.program_timeout = in_time ? 1h : 300ms;
    auto backends = group.backends();
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(1);
    const auto work = sum_on(stream, *backends[0], values);
    work->wait();  // it is on the group's stream
    backends[0]->abort("the loss is nan");
    if (in_time) {
        REQUIRE(passes(500ms));
    } else {
        REQUIRE(eventually([&] { return !group.last_lines().empty(); }));
    }
    CHECK_FALSE(work->done());  // the device still has its buffers
    gate->store(true);
    CHECK(outcome_of([&] { wait_host(*work); }).code == ErrorCode::Aborted);
    backends.clear();
    CHECK(group.last_lines().empty() == in_time);
}

TEST_CASE("nccl: the abort of a group without operations may wait for work of the program", "[nccl]") {
    const bool in_time = GENERATE(false, true);
    FakeGroup group(1);
    group.limits.abort_timeout = 100ms;
    group.limits.program_timeout = in_time ? 1h : 300ms;
    auto backends = group.backends();
    group.gpu.abort_blocks = true;
    backends[0]->abort("the loss is nan");
    if (in_time) {
        REQUIRE(passes(500ms));
        group.gpu.let_go();
    } else {
        REQUIRE(eventually([&] { return !group.last_lines().empty(); }));
    }
    backends.clear();
    CHECK(group.last_lines().empty() == in_time);
}

TEST_CASE("nccl: the abort on a device that has failed gets no time for work of the program", "[nccl]") {
    FakeGroup group(1);
    group.limits.abort_timeout = 100ms;
    group.limits.program_timeout = 1h;
    auto backends = group.backends();
    const CUstream stream = group.gpu.make_stream();
    const auto gate = group.gpu.close_gate(stream);
    std::vector<float> values(1);
    const auto work = sum_on(stream, *backends[0], values);
    work->wait();
    group.gpu.abort_blocks = true;
    group.gpu.query_fails = true;
    REQUIRE(eventually([&] { return !group.last_lines().empty(); }));
    gate->store(true);
    CHECK(outcome_of([&] { wait_host(*work); }).code == ErrorCode::System);
    backends.clear();
}

TEST_CASE("nccl: a start that fails fails no other group", "[nccl]") {
    FakeGroup group(2);
    group.limits.shared_timeout = 50ms;
    const auto world = group.backends();
    std::vector<float> values(1), others(1);
    const auto work = sum_on(nullptr, *world[0], values);
    group.store = detail::make_local_store();
    group.init_timeout = 500ms;
    group.gpu.freeze({1});
    for (const Outcome& outcome : group.run([](int, BackendImpl&) {})) {
        CHECK(outcome.code == ErrorCode::Timeout);
        CHECK_THAT(outcome.text, Contains("NCCL could not start: #0 barrier 'start'"));
    }
    REQUIRE(passes(300ms));
    CHECK_FALSE(world[0]->failure().has_value());
    group.gpu.freeze({});
    wait_host(*sum_on(nullptr, *world[1], others));
    CHECK(outcome_of([&] { wait_host(*work); }).text == "");
}

TEST_CASE("nccl: a free that waits for kernels of the program ends no process", "[nccl]") {
    const bool is_well = GENERATE(true, false);
    FakeGroup group(1);
    group.limits.abort_timeout = 100ms;
    auto backends = group.backends();
    if (!is_well) backends[0]->abort("enough");
    group.gpu.free_blocks = true;
    auto ending = std::async(std::launch::async, [&] { backends.clear(); });
    REQUIRE(eventually([&] { return group.gpu.blocked() == 1; }));
    REQUIRE(passes(500ms));
    group.gpu.let_go();
    ending.get();
    CHECK(group.last_lines().empty());
}

TEST_CASE("nccl: an abort that waits too long for another group of the device fails that group first", "[nccl]") {
    const bool frees_the_abort = GENERATE(true, false);
    FakeGroup group(2);
    group.limits.abort_timeout = 1s;
    group.limits.program_timeout = 500ms;
    auto world = group.backends(), part = group.backends("part", detail::make_local_store());
    auto later = group.backends("later", detail::make_local_store());
    group.gpu.abort_blocks = true;
    std::vector<float> values(1), others(1), more(1), theirs(1);
    const auto slow = sum_on(nullptr, *world[0], values);  // rank 1 does not come
    const auto held = sum_on(nullptr, *part[0], others);
    part[0]->abort("enough");
    REQUIRE(eventually([&] { return world[0]->failure().has_value(); }));
    CHECK(world[0]->failure()->code() == ErrorCode::Aborted);
    CHECK_THAT(world[0]->failure()->what(), Contains("in group 'world': given up, because the abort of another group "
                                                     "of this device waits for it") &&
                                                Contains("in group 'part': aborted: enough"));
    CHECK(group.last_lines().empty());
    const auto last = sum_on(nullptr, *later[0], more);  // gets the abort no more time
    if (frees_the_abort) group.gpu.let_go();
    CHECK(outcome_of([&] { wait_host(*held); }).code == ErrorCode::Aborted);
    CHECK_FALSE(later[0]->failure().has_value());
    wait_host(*sum_on(nullptr, *later[1], theirs));
    CHECK(outcome_of([&] { wait_host(*last); }).text == "");
    CHECK(outcome_of([&] { wait_host(*slow); }).code == ErrorCode::Aborted);
    CHECK(group.last_lines().empty() == frees_the_abort);
}

TEST_CASE("nccl: a group's stream has the highest priority of the device", "[nccl]") {
    static std::vector<int> priorities;
    static decltype(detail::CudaApi::stream_create_with_priority) create;
    priorities.clear();
    FakeGroup group(1);
    detail::GpuApi api = group.gpu.api();
    create = std::exchange(api.cuda.stream_create_with_priority, [](CUstream* stream, unsigned flags, int priority) {
        priorities.push_back(priority);
        return create(stream, flags, priority);
    });
    int lowest = 0, highest = 0;
    (void)api.cuda.ctx_get_stream_priority_range(&lowest, &highest);
    const auto backend = detail::make_nccl_backend(group.spec(0), api, group.limits);
    REQUIRE_FALSE(priorities.empty());
    CHECK(priorities[0] == highest);
    CHECK(highest < lowest);
}

TEST_CASE("nccl: DDPRUN_NCCL_ABORT_TIMEOUT is a number of seconds", "[nccl]") {
    std::optional<std::string> value;
    const auto limits = [&] { return detail::read_limits([&](const char*) { return value; }); };
    CHECK(limits().abort_timeout == 1s);
    value = "";
    CHECK(limits().abort_timeout == 1s);
    value = "30";
    CHECK(limits().abort_timeout == 30s);
    value = GENERATE(as<std::string>(), "0", "3601", "-1", "1.5", "5s", "fast");
    const Outcome refused = outcome_of([&] { (void)limits(); });
    CHECK(refused.code == ErrorCode::Environment);
    CHECK(refused.text == "DDPRUN_NCCL_ABORT_TIMEOUT is '" + *value +
                              "', expected a whole number of seconds from 1 to 3600. Unset it to use the default, 1");
}

TEST_CASE("nccl: a start that NCCL ends after its deadline is aborted when it comes back", "[nccl]") {
    FakeGroup group(2);
    group.nccl_version = 22602;  // stays in NCCL
    group.init_timeout = 1s;
    group.limits.abort_timeout = 100ms;
    group.gpu.init_never_completes = true;
    for (const Outcome& outcome : group.run([](int, BackendImpl&) {})) CHECK(outcome.code == ErrorCode::Timeout);
    CHECK(group.gpu.counts().aborts == 0);
    group.gpu.complete_inits();
    CHECK(eventually([&] { return group.gpu.counts().aborts == 2; }));
}

TEST_CASE("nccl: NCCL's codes have ours, and its last error is shown only if it is new", "[nccl]") {
    CHECK(detail::error_code_of(ncclTimeout) == ErrorCode::Timeout);
    CHECK(detail::error_code_of(ncclRemoteError) == ErrorCode::PeerLost);
    CHECK(detail::error_code_of(ncclInternalError) == ErrorCode::System);
    FakeGroup group(1);
    for (const bool is_new : {true, false}) {
        const auto backends = group.backends();
        group.gpu.refuse_launch = ncclSystemError;
        const Outcome outcome = outcome_of([&] { wait_host(*submit(*backends[0], operation(OpKind::kBarrier, 1))); });
        CHECK_THAT(outcome.text, Contains("NCCL could not launch it: system error"));
        CHECK((outcome.text.find("(as scripted)") != std::string::npos) == is_new);
        group.gpu.refuse_launch.reset();
        group.store = detail::make_local_store();
    }
}

// Addresses and losses of a group's ranks on NCCL: names in errors, and how store-based calls notice a death.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/nccl/peers.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

/// A process that does nothing until it is killed.
class FirstVictim {
public:
    FirstVictim() {
        char name[] = "sleep", time[] = "1000";
        char* const arguments[] = {name, time, nullptr};
        char* const environment[] = {nullptr};
        if (::posix_spawnp(&pid_, name, nullptr, nullptr, arguments, environment) != 0) pid_ = -1;
    }
    ~FirstVictim() { kill(); }
    FirstVictim(const FirstVictim&) = delete;
    FirstVictim& operator=(const FirstVictim&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

private:
    pid_t pid_ = -1;
};

/// `record` as another process of this machine would have written it.
std::string with_pid(const std::string& record, pid_t pid) {
    const auto first = record.find(' ');
    const auto second = record.find(' ', first + 1);
    return record.substr(0, first + 1) + std::to_string(pid) + record.substr(second);
}

/// A store in which rank 1 of 'world' appears to be another process.
class DisguisingStore final : public Store {
public:
    explicit DisguisingStore(pid_t pid) : pid_(pid) {}
    void set(std::string_view key, std::string_view value) override {
        store_->set(key, key.ends_with("nccl/address/1") ? with_pid(std::string(value), pid_) : std::string(value));
    }
    std::string get(std::string_view key, milliseconds timeout) override { return store_->get(key, timeout); }
    std::string set_once(std::string_view key, std::string_view value) override { return store_->set_once(key, value); }
    void erase(std::string_view key) override { store_->erase(key); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return store_->add(key, amount); }
    std::string local_address() const override { return store_->local_address(); }

private:
    const pid_t pid_;
    const std::shared_ptr<Store> store_ = detail::make_local_store();
};

/// Runs two ranks, the second disguised as `process`. Returns the outcome of the first, which calls `act` when both are
/// connected. `act` may end the process.
Outcome beside(FirstVictim& process, const std::function<void(ProcessGroup&)>& act) {
    FakeGroup ranks(2);
    ranks.store = std::make_shared<DisguisingStore>(process.pid());
    ranks.init_timeout = 10s;
    std::promise<void> ended;
    const auto ending = ended.get_future().share();
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        if (group.rank() == 1) return ending.wait();
        const Outcome outcome = outcome_of([&] { act(group); });
        ended.set_value();
        if (outcome.failed) throw Error(outcome.code, outcome.text, outcome.culprits);
    });
    CHECK(outcomes[1].text == "");
    return outcomes[0];
}

}  // namespace

TEST_CASE("nccl: errors name host and process, after a split the rank in the job too", "[nccl]") {
    FakeGroup ranks(3);
    const std::string here = detail::own_address();
    CHECK_THAT(here, Contains(", pid " + std::to_string(::getpid())));
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        if (group.name_of(2) != "rank 2 (" + here + ")") throw Error(ErrorCode::System, group.name_of(2));
        group.abort("enough");
        group.barrier().wait();
    });
    for (int rank = 0; rank < 3; ++rank) {
        const std::string name =
            "rank " + std::to_string(rank) + " (" + here + ") of 3 in group 'world': aborted: enough";
        CHECK_THAT(outcomes[static_cast<std::size_t>(rank)].text, Contains(name));
    }
    detail::GroupSpec part = ranks.spec(0);
    part.name = "part";
    part.members = {5};
    part.store = detail::make_local_store();
    const auto backend = detail::make_nccl_backend(part, ranks.gpu.api(), ranks.limits);
    CHECK(backend->name_of(0) == "rank 0 (global rank 5, " + here + ")");
    backend->abort("enough");
    REQUIRE(backend->failure().has_value());
    CHECK(backend->failure()->code() == ErrorCode::Aborted);
    CHECK_THAT(backend->failure()->what(), Contains("rank 0 (global rank 5, " + here + ") of 1 in group 'part'"));
}

TEST_CASE("nccl: split makes groups with communicators of their own, which know their ranks in the job", "[nccl]") {
    FakeGroup ranks(4);
    CHECK(ranks.complaints([](ProcessGroup& world) -> std::string {
        const auto part = world.split(world.rank() % 2, -world.rank(), "half");  // the higher rank first
        std::vector<std::int32_t> sum(1, world.rank());
        part->all_reduce(device_buffer(sum), ReduceOp::Sum).wait_host();
        world.monitored_barrier(20'000ms);
        const int last = world.rank() % 2;  // of this half: the lower rank
        if (sum[0] != 2 * last + 2 || part->size() != 2) return "the sum is another group's\n";
        const std::string name = part->name_of(0);
        return name.starts_with("rank 0 (global rank " + std::to_string(last + 2) + ", host ") ? "" : name + "\n";
    }) == "");
}

TEST_CASE("nccl: survivors shrink the group, and go on", "[nccl]") {
    FakeGroup ranks(3);
    const auto outcomes = ranks.run_worlds([](ProcessGroup& world) {
        if (world.rank() == 1) return world.abort("broken");  // and takes no part any more
        std::vector<std::int32_t> sum(1, world.rank());
        const Outcome failed =
            outcome_of([&] { world.all_reduce(device_buffer(sum), ReduceOp::Sum, {.timeout = 300ms}).wait_host(); });
        if (failed.code != ErrorCode::Timeout) throw Error(ErrorCode::System, "no timeout: " + failed.text);
        const std::vector<int> broken{1};
        const auto rest = world.shrink(broken);
        sum[0] = world.rank();
        rest->all_reduce(device_buffer(sum), ReduceOp::Sum).wait_host();
        if (sum[0] != 2 || rest->size() != 2) throw Error(ErrorCode::System, "another sum");
        if (rest->name_of(1).find("rank 1 (global rank 2, host ") != 0)
            throw Error(ErrorCode::System, rest->name_of(1));
    });
    for (const Outcome& outcome : outcomes) CHECK(outcome.text == "");
}

TEST_CASE("nccl: after abort split and monitored_barrier fail at once, with its reason", "[nccl]") {
    FakeGroup ranks(2);
    for (const Outcome& outcome : ranks.run_worlds([](ProcessGroup& group) {
             group.abort("enough");
             const Outcome split = outcome_of([&] { (void)group.split(0, 0, "part"); });
             const Outcome barrier = outcome_of([&] { group.monitored_barrier(20'000ms); });
             if (split.code != ErrorCode::Aborted || barrier.code != ErrorCode::Aborted)
                 throw Error(ErrorCode::System, "not refused");
             throw Error(ErrorCode::Aborted, split.text + " | " + barrier.text);
         })) {
        CHECK(outcome.code == ErrorCode::Aborted);
        CHECK_THAT(outcome.text, Contains("split 'part' of group 'world' cannot run: the group has failed") &&
                                     Contains("monitored_barrier of group 'world' cannot run") &&
                                     Contains("aborted: enough"));
    }
}

TEST_CASE("nccl: a rank that has ended is named by waits at the store and at an operation's deadline", "[nccl]") {
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    const int way = GENERATE(0, 1, 2, 3);  // 3: NCCL is still connecting when the deadline comes
    CAPTURE(way);
    const Outcome outcome = beside(process, [&](ProcessGroup& group) {
        process.kill();
        std::vector<float> values(3);
        if (way == 0) (void)group.split(0, 0, "part");
        if (way == 1) group.monitored_barrier(20'000ms);
        FakeGpu::current().never_takes_in = way == 3;
        if (way >= 2) group.all_reduce(device_buffer(values), ReduceOp::Sum, {.timeout = 200ms}).wait_host();
    });
    CHECK(outcome.code == ErrorCode::PeerLost);
    CHECK(outcome.culprits == std::vector{1});
    CHECK_THAT(outcome.text, Contains("rank 1 (host ") && Contains(") is gone: its process ended"));
}

TEST_CASE("nccl: an operation in flight ends 2 s after the death of a rank here, with its name, not at its deadline",
          "[nccl]") {
    const bool nccl_notices = GENERATE(false, true);  // and has a code of its own
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    ddprun::Duration took{};
    const Outcome outcome = beside(process, [&](ProcessGroup& group) {
        if (nccl_notices) FakeGpu::current().async_error = FakeGpu::AsyncError{0, 1, ncclSystemError};
        std::vector<float> values(3);
        Work work = group.all_reduce(device_buffer(values), ReduceOp::Sum);
        process.kill();
        const auto start = ddprun::Clock::now();
        const Outcome ended = outcome_of([&] { work.wait_host(); });
        took = ddprun::Clock::now() - start;
        throw Error(ended.code, ended.text, ended.culprits);
    });
    CHECK(outcome.code == ErrorCode::PeerLost);
    CHECK(outcome.culprits == std::vector{1});
    CHECK_THAT(outcome.text, Contains("rank 1 (host ") && Contains(") is gone: its process ended") &&
                                 Contains(nccl_notices ? "NCCL failed" : " s after a rank was lost"));
    CHECK(took < (nccl_notices ? 2s : 4s));  // 2.2 s where the machine is idle; the deadline is 20 s
}

TEST_CASE("nccl: a group without operations fails with one of its device that has lost a rank of both", "[nccl]") {
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    FakeGroup ranks(2);
    ranks.limits.loss_timeout = 200ms;
    const std::shared_ptr<Store> disguising = std::make_shared<DisguisingStore>(process.pid());
    const auto plain = detail::make_local_store();  // the process is not watched in this group
    const auto make = [&](int rank) {
        detail::GroupSpec world = ranks.spec(rank), part = ranks.spec(rank);
        world.store = disguising;
        part.name = "part";
        part.store = plain;
        return std::pair(detail::make_nccl_backend(world, ranks.gpu.api(), ranks.limits),
                         detail::make_nccl_backend(part, ranks.gpu.api(), ranks.limits));
    };
    auto peer = std::async(std::launch::async, [&] { return make(1); });
    const auto [world, part] = make(0);
    const auto others = peer.get();
    std::vector<float> values(3);
    const auto work = submit(*world, all_reduce(values, ReduceOp::Sum));
    process.kill();
    CHECK(outcome_of([&] { wait_host(*work); }).code == ErrorCode::PeerLost);
    REQUIRE(eventually([&, &part = part] { return part->failure().has_value(); }));
    CHECK(part->failure()->code() == ErrorCode::PeerLost);
    CHECK(part->failure()->culprits() == std::vector{1});
    CHECK_FALSE(others.second->failure().has_value());  // it is another rank's, on another device
}

TEST_CASE("nccl: a rank that ends while NCCL starts is named at once", "[nccl]") {
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    FakeGroup ranks(2);
    ranks.store = std::make_shared<DisguisingStore>(process.pid());
    ranks.gpu.init_never_completes = true;
    auto peer = std::async(std::launch::async, [&] { return outcome_of([&] { (void)ranks.backend(1); }); });
    auto own = std::async(std::launch::async, [&] { return outcome_of([&] { (void)ranks.backend(0); }); });
    REQUIRE(eventually([&] { return ranks.gpu.counts().retained >= 4; }));  // both have a queue and a device
    process.kill();
    const Outcome outcome = own.get();
    CHECK(outcome.code == ErrorCode::PeerLost);
    CHECK(outcome.culprits == std::vector{1});
    CHECK_THAT(outcome.text, Contains("NCCL could not start: rank 1 (host ") && Contains("its process ended"));
    (void)peer.get();
}

TEST_CASE("nccl: a lost rank of another group ends what needs it, also after a deadline of a third, and nothing else",
          "[nccl]") {
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    FakeGroup ranks(3);
    ranks.limits.loss_timeout = 200ms;
    ranks.limits.shared_timeout = 1h;
    const std::shared_ptr<Store> disguising = std::make_shared<DisguisingStore>(process.pid());
    const auto world = ranks.backends("world", disguising);
    // The process is not watched in the others.
    const auto sums = ranks.backends("sums", detail::make_local_store());
    const auto messages = ranks.backends("messages", detail::make_local_store());
    const auto third = ranks.backends("third", detail::make_local_store());
    const auto message = [](bool sends, int peer, float& value) {
        detail::TransferList batch;
        batch.seq = 1;
        batch.deadline = ddprun::Clock::now() + 20s;
        batch.transfers.push_back(
            {.sends = sends, .buffer = Buffer(&value, 1, DType::F32, Device::Cuda), .peer = peer});
        return batch;
    };
    std::vector<float> values(3), others(3);
    float sent = 7, received = 0;
    const auto sum = submit(*sums[0], all_reduce(others, ReduceOp::Sum));
    const auto receive = transfer(*messages[0], message(false, 2, received));
    CHECK(outcome_of([&] { wait_host(*submit(*third[0], all_reduce(values, ReduceOp::Sum, 1, 100ms))); }).code ==
          ErrorCode::Timeout);
    const auto work = submit(*world[0], all_reduce(values, ReduceOp::Sum));
    process.kill();
    CHECK(outcome_of([&] { wait_host(*work); }).code == ErrorCode::PeerLost);
    const Outcome neighbour = outcome_of([&] { wait_host(*sum); });
    CHECK(neighbour.code == ErrorCode::PeerLost);
    CHECK(neighbour.culprits == std::vector{1});
    const auto send = transfer(*messages[2], message(true, 0, sent));
    CHECK(outcome_of([&] { wait_host(*receive); }).text == "");
    CHECK(received == 7);
    CHECK(outcome_of([&] { wait_host(*send); }).text == "");
    REQUIRE(eventually([&] { return messages[0]->failure().has_value(); }));
    CHECK(messages[0]->failure()->culprits() == std::vector{1});
}

TEST_CASE("nccl: after the death of a rank what ends by itself is done, and messages of other ranks go on", "[nccl]") {
    FirstVictim process;
    REQUIRE(process.pid() > 0);
    FakeGroup ranks(3);
    ranks.store = std::make_shared<DisguisingStore>(process.pid());
    ranks.limits.loss_timeout = 400ms;
    std::vector<std::future<std::unique_ptr<detail::BackendImpl>>> made;
    for (int rank = 0; rank < 3; ++rank)
        made.push_back(std::async(std::launch::async, [&ranks, rank] { return ranks.backend(rank); }));
    std::vector<std::unique_ptr<detail::BackendImpl>> backends;
    for (auto& one : made) backends.push_back(one.get());

    // The dead rank has done its part of the sum before. The callers' streams are late.
    std::vector<std::shared_ptr<std::atomic<bool>>> gates;
    std::vector<std::vector<float>> values(3, std::vector<float>(3, 1.F));
    std::vector<std::shared_ptr<detail::WorkState>> sums;
    for (std::size_t rank = 0; rank < 3; ++rank) {
        const CUstream stream = ranks.gpu.make_stream();
        gates.push_back(ranks.gpu.close_gate(stream));
        auto sum = all_reduce(values[rank], ReduceOp::Sum);
        sum.stream.handle = stream;
        sums.push_back(submit(*backends[rank], std::move(sum)));
    }
    process.kill();
    const auto death = ddprun::Clock::now();
    REQUIRE(eventually([&] { return ddprun::Clock::now() - death > 600ms; }));  // its time begins with its start
    for (const auto& gate : gates) gate->store(true);
    for (const auto& sum : sums) CHECK(outcome_of([&] { wait_host(*sum); }).text == "");

    const auto message = [&](bool sends, int peer, float& value) {
        detail::TransferList batch;
        batch.seq = 1;
        batch.deadline = ddprun::Clock::now() + 20s;
        batch.transfers.push_back(
            {.sends = sends, .buffer = Buffer(&value, 1, DType::F32, Device::Cuda), .peer = peer});
        return batch;
    };
    float sent = 7, received = 0;
    const auto receive = transfer(*backends[0], message(false, 2, received));
    const auto begin = ddprun::Clock::now();
    REQUIRE(eventually([&] { return receive->done() || ddprun::Clock::now() - begin > 900ms; }));
    const auto send = transfer(*backends[2], message(true, 0, sent));
    CHECK(outcome_of([&] { wait_host(*receive); }).text == "");
    CHECK(received == 7);
    const auto other = transfer(*backends[0], message(false, 1, received));
    CHECK(outcome_of([&] { wait_host(*other); }).culprits == std::vector{1});
    CHECK(outcome_of([&] { wait_host(*send); }).text == "");
}

TEST_CASE("nccl: a rank that lives is not a culprit of a deadline", "[nccl]") {
    FirstVictim process;
    const Outcome outcome = beside(process, [&](ProcessGroup& group) {
        std::vector<float> values(3);
        group.all_reduce(device_buffer(values), ReduceOp::Sum, {.timeout = 200ms}).wait_host();
    });
    CHECK(outcome.code == ErrorCode::Timeout);
    CHECK(outcome.culprits.empty());
    CHECK_THAT(outcome.text, !Contains("is gone"));
}

TEST_CASE("nccl: a rank that ends while the group forms is named", "[nccl]") {
    FirstVictim process;
    detail::GroupSpec spec = FakeGroup(2).spec(0);
    const std::string own = detail::Peers::own_record(spec);
    const std::string other = with_pid(own, process.pid());
    CHECK_FALSE(detail::Peers(spec, {own, other}).losses().has_value());
    process.kill();
    const Outcome outcome = outcome_of([&] { const detail::Peers peers(spec, {own, other}); });
    CHECK(outcome.code == ErrorCode::PeerLost);
    CHECK_THAT(outcome.text, Contains("rank 1 (host ") && Contains("ended while the group was forming"));
    CHECK_THAT(outcome_of([&] {
                   const detail::Peers peers(spec, {own, "host"});
               }).text,
               Contains("rank 1 published the record 'host', which this version of the library cannot read"));
    // On another machine the same pid is another process.
    const std::string elsewhere = other + "-of-another-boot";
    CHECK_FALSE(detail::Peers(spec, {own, elsewhere}).losses().has_value());
}

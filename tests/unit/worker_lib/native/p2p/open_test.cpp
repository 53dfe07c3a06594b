// Which transfers P2p carries out immediately, and which it queues behind others: two ranks of a node in one thread, so
// that the transfers in flight are known.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/p2p/p2p.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

using Values = std::vector<std::int64_t>;
using Segments = std::vector<std::shared_ptr<Segment>>;

std::vector<LocalRank> ranks_of(const Segments& segments) {
    std::vector<LocalRank> ranks(segments.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        ranks[i].rank = static_cast<int>(i);
        ranks[i].segment = segments[i];
    }
    return ranks;
}

/// One of two ranks of a node.
struct Rank {
    Rank(int rank, const Segments& segments)
        : other(1 - rank),
          topology(make_topology(members, rank)),
          node("world", static_cast<int>(segments.size()), ranks_of(segments), rank),
          arena(segments[static_cast<std::size_t>(rank)]),
          p2p(std::make_shared<P2p>(P2pSetup{.group = "world",
                                             .rank = rank,
                                             .topology = topology,
                                             .members = members,
                                             .node = node,
                                             .arena = arena,
                                             .key = {},
                                             .listener = {},
                                             .on_failure = [](const detail::Failure&) {}})) {}
    ~Rank() { p2p->stop({.code = ErrorCode::Aborted, .cause = "the test is over"}, false); }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    [[nodiscard]] Transfer send(Values& values, int tag = 0) const { return {true, Buffer(values), other, tag}; }
    [[nodiscard]] Transfer recv(Values& values, int tag = 0) const { return {false, Buffer(values), other, tag}; }
    /// Submits a batch as NativeBackend does; returns null when all of it was done immediately.
    /// write   in place of TransferRecord::write()
    std::shared_ptr<WorkState> transfer(
        std::vector<Transfer> transfers, const std::function<void()>& write = [] {}) {
        TransferList batch;
        batch.seq = ++last_seq;
        batch.transfers = std::move(transfers);
        batch.deadline = ddprun::Clock::now() + std::chrono::minutes(1);
        p2p::ImmediateBatch begun = p2p->open(batch);
        opened = static_cast<bool>(begun);
        write();
        const p2p::DoneTransfers done = std::move(begun).finish(batch);
        return done.all ? nullptr : p2p->submit(std::move(batch), done);
    }

    const int other;
    const std::vector<Member> members{2};
    const Topology topology;
    Node node;
    HeapArena arena;
    std::uint64_t last_seq = 0;
    bool opened = false;  ///< of the last batch
    std::shared_ptr<P2p> p2p;
};

struct Pair {
    explicit Pair(bool connected = true) {
        if (!connected) return;
        Values& values = kept.emplace_back(1);
        const auto sent = a.transfer({a.send(values)});
        const auto received = b.transfer({b.recv(values)});
        CHECK_FALSE((a.opened || b.opened));
        REQUIRE(ends({sent, received}));
    }
    /// Lets both ranks make progress until these works have ended. Returns whether they have.
    bool ends(const std::vector<std::shared_ptr<WorkState>>& works) const {
        const auto enough = ddprun::Clock::now() + std::chrono::seconds(20);
        for (const auto& work : works) {
            while (!work->done()) {
                if (ddprun::Clock::now() > enough) return false;
                for (const Rank* one : {&a, &b}) {
                    one->p2p->start();
                    one->p2p->hurry();
                }
                std::this_thread::yield();
            }
        }
        return true;
    }

    /// Returns values that live as long as the ranks, as a buffer has to.
    Values& values(Values of) { return kept.emplace_back(std::move(of)); }

    std::deque<Values> kept;
    Segments segments{Segment::create(), Segment::create()};
    Rank a{0, segments};
    Rank b{1, segments};
};

/// Returns whether the rank can stop() within 10 s. If not, a thread with the pair is left behind.
bool can_stop(const std::shared_ptr<Pair>& pair, Rank& rank) {
    std::promise<void> stopped;
    auto end = stopped.get_future();
    std::thread stopping([pair, &rank, stopped = std::move(stopped)]() mutable {
        rank.p2p->stop({.code = ErrorCode::Aborted, .cause = "the test is over"}, false);
        stopped.set_value();
    });
    const bool can = end.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    can ? stopping.join() : stopping.detach();
    return can;
}

std::optional<Error> error_of(WorkState& work) {
    try {
        (void)work.wait_until(ddprun::Clock::now());
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

}  // namespace

TEST_CASE("small messages of neighbours are sent and received immediately, also a few in one batch", "[p2p][unit]") {
    Pair pair;
    Values& value = pair.values({1});
    Values& got = pair.values({-1});
    CHECK(pair.a.transfer({pair.a.send(value)}) == nullptr);
    CHECK(pair.b.transfer({pair.b.recv(got), pair.b.send(value)}) == nullptr);
    CHECK(pair.a.transfer({pair.a.recv(value)}) == nullptr);
    CHECK(got == Values{1});
    Values& largest = pair.values(Values(ProcessGroup::kEagerBytes / sizeof(std::int64_t)));
    CHECK(pair.a.transfer({pair.a.send(largest)}) == nullptr);
    Values& too_large = pair.values(Values(257));
    CHECK(pair.a.transfer({pair.a.send(too_large)}) == nullptr);
    CHECK(pair.a.transfer(std::vector(8, pair.a.send(value))) == nullptr);
    (void)pair.a.transfer(std::vector(9, pair.a.send(value)));
    CHECK_FALSE(pair.a.opened);
}

TEST_CASE("immediate transfers of a batch are not repeated by its work", "[p2p][unit]") {
    Pair pair;
    Values& value = pair.values({1});
    Values& larger = pair.values(Values(257, 2));
    REQUIRE(pair.a.transfer({pair.a.send(value)}) == nullptr);
    const auto both = pair.a.transfer({pair.a.send(larger), pair.a.send(larger)});
    CHECK_FALSE(pair.a.opened);
    Values& got = pair.values({-1});
    REQUIRE(pair.b.transfer({pair.b.recv(got)}) == nullptr);
    CHECK(got == value);
    Values& first = pair.values(Values(257));
    Values& second = pair.values(Values(257));
    const auto received = pair.b.transfer({pair.b.recv(first), pair.b.recv(second)});
    CHECK_FALSE(pair.b.opened);
    REQUIRE(pair.ends({both, received}));
    CHECK((first == larger && second == larger));
}

TEST_CASE("a message of a batch that was received immediately is not received again", "[p2p][unit]") {
    Pair pair;
    Values& value = pair.values({1});
    REQUIRE(pair.a.transfer({pair.a.send(value)}) == nullptr);
    Values& first = pair.values({-1});
    Values& second = pair.values({-1});
    const auto received = pair.b.transfer({pair.b.recv(first), pair.b.recv(second)});
    REQUIRE(received != nullptr);
    CHECK(first == Values{1});
    value = {2};
    REQUIRE(pair.a.transfer({pair.a.send(value)}) == nullptr);
    REQUIRE(pair.ends({received}));
    CHECK((first == Values{1} && second == Values{2}));
}

TEST_CASE("no immediate transfer is tried with a rank that is not connected so far", "[p2p][unit]") {
    Pair pair(false);
    Values& value = pair.values({1});
    const auto received = pair.b.transfer({pair.b.recv(value)});
    CHECK_FALSE(pair.b.opened);
    const auto to_itself = pair.b.transfer({{true, Buffer(value), 1, 0}});
    CHECK_FALSE(pair.b.opened);
}

TEST_CASE("a submitted work goes before a send that could go immediately", "[p2p][unit]") {
    Pair pair;
    Values& first = pair.values(Values(2048 + 1, 1));  // is offered
    Values& second = pair.values({2});
    const auto offered = pair.a.transfer({pair.a.send(first)});
    const auto behind = pair.a.transfer({pair.a.send(second)});
    CHECK_FALSE(pair.a.opened);
    Values& got = pair.values(Values(first.size()));
    Values& then = pair.values({-1});
    const auto received = pair.b.transfer({pair.b.recv(got)});
    const auto next = pair.b.transfer({pair.b.recv(then)});
    REQUIRE(pair.ends({offered, behind, received, next}));
    CHECK(got == first);
    CHECK(then == second);
}

TEST_CASE("while a receive is in flight other receives need a work, sends do not", "[p2p][unit]") {
    Pair pair;
    Values& before = pair.values({-1});
    const auto waiting = pair.b.transfer({pair.b.recv(before, 3)});
    pair.b.p2p->start();
    Values& value = pair.values({1});
    CHECK(pair.a.transfer({pair.a.send(value, 1)}) == nullptr);
    CHECK(pair.a.transfer({pair.a.send(value, 1)}) == nullptr);
    Values& got = pair.values({-1});
    const auto received = pair.b.transfer({pair.b.recv(got, 1)});
    CHECK_FALSE(pair.b.opened);
    REQUIRE(pair.ends({received}));
    REQUIRE(pair.ends({pair.b.transfer({pair.b.recv(got, 1)})}));
    // b has a thread by now. While that makes progress, the send needs a work, too, and a message becomes unexpected.
    for (int round = 0; round < 20; ++round) {
        Values& back = pair.values({2});
        REQUIRE(pair.a.transfer({pair.a.send(value, 1)}) == nullptr);
        const auto both = pair.b.transfer({pair.b.send(back), pair.b.recv(got, 1)});
        REQUIRE(both != nullptr);
        REQUIRE(pair.ends({both}));
    }
    CHECK_FALSE(waiting->done());
    CHECK(pair.a.transfer({pair.a.send(value, 3)}) == nullptr);
    CHECK(pair.ends({waiting}));
    CHECK(before == Values{1});
}

TEST_CASE("no send of a batch overtakes one for which there is no room", "[p2p][unit]") {
    Pair pair;
    Values& first = pair.values(Values(256, 1));
    Values& second = pair.values({2});
    const std::size_t filling =
        (ProcessGroup::kEagerWindow - p2p::EagerWindow::cost_of(8)) / p2p::EagerWindow::cost_of(2048);
    for (std::size_t i = 0; i < filling; ++i) REQUIRE(pair.a.transfer({pair.a.send(first, 1)}) == nullptr);
    const auto sent = pair.a.transfer({pair.a.send(first), pair.a.send(second)});
    CHECK_FALSE(pair.a.opened);  // the second one would fit into the window
    Values& got = pair.values(Values(256));
    Values& then = pair.values({-1});
    const auto received = pair.b.transfer({pair.b.recv(got)});
    const auto next = pair.b.transfer({pair.b.recv(then)});
    REQUIRE(pair.ends({received, next, sent}));
    CHECK(got == first);
    CHECK(then == second);
}

TEST_CASE("no receive of a batch takes a message that is for an earlier one", "[p2p][unit]") {
    Pair pair;
    Values& sent = pair.values({1, 2});
    REQUIRE(pair.a.transfer({pair.a.send(sent)}) == nullptr);
    Values& one = pair.values({-1});
    Values& two = pair.values({-1, -1});
    const auto received = pair.b.transfer({pair.b.recv(one), pair.b.recv(two)});
    REQUIRE(received != nullptr);
    REQUIRE(pair.ends({received}));
    const auto error = error_of(*received);
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Mismatch);
    CHECK(two == Values{-1, -1});
    (void)pair.b.transfer({pair.b.send(sent)});  // the group has failed
    CHECK_FALSE(pair.b.opened);
}

TEST_CASE("a batch whose record cannot be written leaves neither P2p's lock taken nor marks for the next batch",
          "[p2p][unit]") {
    const auto pair = std::make_shared<Pair>();
    Values& first = pair->values({1});
    Values& second = pair->values({2});
    const auto out_of_memory = [] { throw std::bad_alloc(); };
    CHECK_THROWS_AS(pair->a.transfer({pair->a.send(first)}, out_of_memory), std::bad_alloc);
    CHECK(pair->a.opened);
    CHECK(pair->a.transfer({pair->a.send(second)}) == nullptr);
    Values& got = pair->values({-1});
    Values& then = pair->values({-1});
    CHECK(pair->b.transfer({pair->b.recv(got)}) == nullptr);
    CHECK(pair->b.transfer({pair->b.recv(then)}) == nullptr);
    CHECK((got == first && then == second));
    REQUIRE(can_stop(pair, pair->a));
}

TEST_CASE("a group that has failed sends nothing immediately", "[p2p][unit]") {
    Pair pair;
    pair.a.node.failure.poison({.code = ErrorCode::Aborted, .cause = "no more of this"});
    Values& value = pair.values({1});
    const auto sent = pair.a.transfer({pair.a.send(value)});
    CHECK_FALSE(pair.a.opened);
    CHECK(pair.ends({sent}));
    CHECK(error_of(*sent));
}

TEST_CASE("an immediate send wakes its receiver, and an immediate receive a sender without room", "[p2p][unit]") {
    Pair pair;
    Values& value = pair.values({1});
    std::atomic<std::uint32_t>& receiver = pair.segments[1]->post_page().asleep;
    receiver = 1;
    REQUIRE(pair.a.transfer({pair.a.send(value)}) == nullptr);
    CHECK(receiver == 0);
    std::atomic<std::uint32_t>& sender = pair.segments[0]->post_page().asleep;
    const RingMemory ring = ring_at(pair.segments[0]->post_area(), kPostBytes, 2, 1);
    sender = 1;
    ring.control->starved = 1;
    REQUIRE(pair.b.transfer({pair.b.recv(value)}) == nullptr);
    CHECK(ring.control->starved == 0);
    CHECK(sender == 0);
}

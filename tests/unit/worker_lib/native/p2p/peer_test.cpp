// Both ends of sends and receives between two ranks of a node, step by step in one thread: what may go and come at
// once, and what has to wait for its turn. Nothing here depends on who is faster.

#include "worker_lib/src/native/p2p_peer.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/p2p_lane.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

using Values = std::vector<std::int64_t>;
using Look = P2pPeer::Look;

struct Lane {
    explicit Lane(std::size_t capacity) : bytes(capacity) {}
    [[nodiscard]] LaneMemory memory() { return {&control, bytes.data(), bytes.size()}; }
    LaneControl control;
    std::vector<std::byte> bytes;
};

struct End {
    End(int rank, Lane& out, Lane& in)
        : owner{rank, members, arena, node, listening, {}, {}},
          peer(owner, 1 - rank, PeerMemory{}, std::make_unique<LaneOutlet>(out.memory()),
               std::make_unique<LaneInlet>(in.memory(), WakerFence::kItself)) {}

    static std::vector<LocalRank> alone() {
        std::vector<LocalRank> ranks(1);
        ranks[0].segment = Segment::create();
        return ranks;
    }
    [[nodiscard]] TransferBatch batch(bool sends, Buffer buffer, int tag) {
        TransferBatch made;
        made.seq = ++last_seq;
        made.transfers.push_back({.sends = sends, .buffer = buffer, .peer = peer.rank(), .tag = tag});
        return made;
    }
    [[nodiscard]] bool send_at_once(Buffer buffer, int tag = 0) {
        const TransferBatch made = batch(true, buffer, tag);
        return peer.send_at_once(made, made.transfers.front());
    }
    [[nodiscard]] bool send_at_once(Values values, int tag = 0) { return send_at_once(buffer(std::span(values)), tag); }
    [[nodiscard]] Look receive_at_once(Buffer buffer, int tag = 0) {
        return peer.receive_at_once(batch(false, buffer, tag).transfers.front());
    }
    /// The usual way.
    std::shared_ptr<P2pWork> post(bool sends, Buffer buffer, int tag = 0) {
        auto work = std::make_shared<P2pWork>(batch(sends, buffer, tag), nullptr);
        peer.post({work, 0});
        return work;
    }
    void progress() {
        (void)peer.progress();
        for (Pending& one : owner.finished) (void)one.work->finish(one.index);
        owner.finished.clear();
    }

    const std::vector<Member> members{2};
    Node node{"world", alone(), 0, false};
    HeapArena arena{node.local(0).segment};
    std::atomic<std::uint64_t> listening{0};
    std::uint64_t last_seq = 0;
    P2pOwner owner;
    P2pPeer peer;
};

struct Pair {
    explicit Pair(std::size_t capacity) : lanes{Lane(capacity), Lane(capacity)} {}
    /// Until nothing moves any more: a large message takes several turns.
    void progress() {
        for (int turn = 0; turn < 100; ++turn) {
            a.progress();
            b.progress();
        }
    }
    std::array<Lane, 2> lanes;
    End a{0, lanes[0], lanes[1]};
    End b{1, lanes[1], lanes[0]};
};

constexpr std::size_t kSmallLane = 1024;
constexpr std::size_t kLargeLane = std::size_t{512} << 10;

}  // namespace

TEST_CASE("no message goes at once into one that is on its way, nor past it", "[p2p][unit]") {
    Pair pair(kSmallLane);
    Values large(200, 7);
    Values got(200);
    const auto sent = pair.a.post(true, buffer(std::span(large)));
    pair.a.progress();  // part of it
    const auto received = pair.b.post(false, buffer(std::span(got)));
    pair.b.progress();
    REQUIRE_FALSE(sent->has_ended());
    CHECK_FALSE(pair.a.send_at_once({8}));  // there would be room
    pair.progress();
    CHECK(sent->has_ended());
    CHECK(received->has_ended());
    CHECK(got == large);
    CHECK(pair.a.send_at_once({8}));
}

TEST_CASE("what goes at once goes as a whole: so much as there is room for", "[p2p][unit]") {
    Pair pair(kSmallLane);
    std::int64_t sent = 0;
    while (pair.a.send_at_once(Values(20, sent))) ++sent;
    CHECK(sent == 4);                       // of 240 bytes with what stands before it
    CHECK_FALSE(pair.a.send_at_once({1}));  // its 8 bytes there is room for, not for what stands before them
    for (std::int64_t i = 0; i < sent; ++i) {
        Values got(20);
        CHECK(pair.b.receive_at_once(buffer(std::span(got))) == Look::kTaken);
        CHECK(got == Values(20, i));
    }
    Values got(20);
    CHECK(pair.b.receive_at_once(buffer(std::span(got))) == Look::kNothing);
    CHECK(pair.a.send_at_once(Values(20)));
}

TEST_CASE("what goes and comes at once counts against the window, and room in it is told of", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values message(ProcessGroup::kEagerBytes / sizeof(std::int64_t), 5);
    const Buffer all = buffer(std::span(message));
    constexpr int kFit = ProcessGroup::kEagerWindow / (ProcessGroup::kEagerBytes + sizeof(Frame));
    int sent = 0;
    while (sent < 2 * kFit && pair.a.send_at_once(all)) ++sent;
    REQUIRE(sent == kFit);
    int taken = 0;
    while (taken < sent && pair.b.receive_at_once(all) == Look::kTaken) ++taken;
    CHECK(taken == kFit / 2);  // the next one has to tell the sender of its room
    const auto next = pair.b.post(false, all);
    pair.progress();
    CHECK(next->has_ended());
    for (sent = 0; sent < 2 * kFit && pair.a.send_at_once(all);) ++sent;
    CHECK(sent == kFit / 2 + 1);
    Values long_one(message.size() + 1);
    CHECK_FALSE(pair.a.send_at_once(buffer(std::span(long_one))));
}

TEST_CASE("of one tag what has been put aside is received before what comes at once", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values got{-1};
    REQUIRE(pair.a.send_at_once({1}, 1));
    REQUIRE(pair.a.send_at_once({2}, 2));
    CHECK(pair.b.receive_at_once(buffer(std::span(got)), 2) == Look::kOther);
    const auto second = pair.b.post(false, buffer(std::span(got)), 2);
    pair.b.progress();  // the first one is put aside
    REQUIRE(second->has_ended());
    CHECK(got == Values{2});
    REQUIRE(pair.a.send_at_once({3}, 1));
    CHECK(pair.b.receive_at_once(buffer(std::span(got)), 1) == Look::kOther);
    const auto first = pair.b.post(false, buffer(std::span(got)), 1);
    CHECK(got == Values{1});
    CHECK(pair.b.receive_at_once(buffer(std::span(got)), 1) == Look::kTaken);
    CHECK(got == Values{3});
}

TEST_CASE("beside many messages that nobody has asked for none is looked for at once", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values got{-1};
    for (int i = 0; i < 8; ++i) REQUIRE(pair.a.send_at_once({i}, 1));
    pair.b.progress();
    REQUIRE(pair.a.send_at_once({10}, 2));
    CHECK(pair.b.receive_at_once(buffer(std::span(got)), 2) == Look::kTaken);
    REQUIRE(pair.a.send_at_once({9}, 1));
    pair.b.progress();
    REQUIRE(pair.a.send_at_once({11}, 2));
    CHECK(pair.b.receive_at_once(buffer(std::span(got)), 2) == Look::kOther);
    CHECK(got == Values{10});
}

TEST_CASE("the middle of a message is not taken for one, whatever it looks like", "[p2p][unit]") {
    Pair pair(kSmallLane);
    Frame fake;
    fake.dtype = DType::i64;
    fake.count = 1;
    fake.bytes = sizeof(std::int64_t);
    constexpr std::size_t kBefore = 64;  // a frame and so much, and then whole ones: what goes first ends with one
    static_assert((kSmallLane - sizeof(Frame) - kBefore) % sizeof(Frame) == 0);
    std::vector<std::byte> large(kBefore + 20 * sizeof(Frame));
    for (std::size_t at = kBefore; at < large.size(); at += sizeof(Frame)) std::memcpy(&large[at], &fake, sizeof fake);
    std::vector<std::byte> whole(large.size());
    const auto sent = pair.a.post(true, {large.data(), large.size(), DType::u8}, 1);
    pair.a.progress();
    pair.b.progress();
    pair.a.progress();
    std::int64_t got = -1;
    CHECK(pair.b.receive_at_once(buffer(got)) == Look::kOther);
    CHECK(got == -1);
    const auto received = pair.b.post(false, {whole.data(), whole.size(), DType::u8}, 1);
    pair.progress();
    CHECK(received->has_ended());
    CHECK(whole == large);
}

TEST_CASE("a message of which a part has come is not there yet", "[p2p][unit]") {
    Pair pair(kSmallLane);
    Values large(200, 7);
    Values got(200, -1);
    const auto sent = pair.a.post(true, buffer(std::span(large)));
    pair.a.progress();
    CHECK(pair.b.receive_at_once(buffer(std::span(got))) == Look::kNothing);
    CHECK(got == Values(200, -1));
    const auto received = pair.b.post(false, buffer(std::span(got)));
    pair.progress();
    CHECK(received->has_ended());
    CHECK(got == large);
}

TEST_CASE("what does not fit is not taken at once, and told as ever", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values got(2, -1);
    REQUIRE(pair.a.send_at_once({1}));
    std::array<double, 1> other_type{};
    CHECK(pair.b.receive_at_once(buffer(std::span(other_type))) == Look::kOther);
    CHECK(pair.b.receive_at_once(buffer(std::span(got))) == Look::kOther);
    CHECK(pair.b.receive_at_once(buffer(got[0]), 1) == Look::kOther);
    (void)pair.b.post(false, buffer(std::span(got)));
    CHECK_THROWS_AS(pair.b.progress(), Error);
    CHECK(got == Values(2, -1));
}

TEST_CASE("an offer is not taken at once", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values large(ProcessGroup::kEagerBytes / sizeof(std::int64_t) + 1, 7);
    Values got(large.size(), -1);
    CHECK_FALSE(pair.a.send_at_once(large));
    const auto sent = pair.a.post(true, buffer(std::span(large)));
    pair.a.progress();
    CHECK(pair.b.receive_at_once(buffer(std::span(got))) == Look::kOther);
    const auto received = pair.b.post(false, buffer(std::span(got)));
    pair.progress();
    CHECK(got == large);
}

TEST_CASE("an empty message is not taken at once where it is only offered", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Values none;
    std::int64_t sent = 0;
    while (pair.a.send_at_once({sent, sent}, 1)) ++sent;
    REQUIRE_FALSE(pair.a.send_at_once(none));
    pair.b.progress();  // all are put aside, and are asked for only when the sender has seen no room
    const auto empty = pair.a.post(true, buffer(std::span(none)));
    pair.a.progress();
    Values got(2);
    for (std::int64_t i = 0; i < sent; ++i) (void)pair.b.post(false, buffer(std::span(got)), 1);
    CHECK(got == Values(2, sent - 1));
    CHECK(pair.b.receive_at_once(buffer(std::span(none))) == Look::kOther);
    const auto received = pair.b.post(false, buffer(std::span(none)));
    pair.progress();
    CHECK(received->has_ended());
    CHECK(empty->has_ended());
}

TEST_CASE("a frame that contradicts itself is refused, not received at once", "[p2p][unit]") {
    Pair pair(kLargeLane);
    Frame frame;
    frame.dtype = DType::i64;
    frame.count = 1;
    frame.bytes = sizeof(std::int64_t);
    SECTION("no frame") { frame.magic = 7; }
    SECTION("more or less than so many elements") { frame.bytes = 1; }
    SECTION("more or less elements than so many bytes") { frame.count = 2; }
    LaneOutlet stranger(pair.lanes[0].memory());
    const std::array<std::byte, 8> body{};
    REQUIRE(stranger.push(std::as_bytes(std::span(&frame, 1)), body) == sizeof frame + 8);
    std::int64_t got = -1;
    CHECK(pair.b.receive_at_once(buffer(got)) == Look::kOther);
    (void)pair.b.post(false, buffer(got));
    CHECK_THROWS_AS(pair.b.progress(), Error);
}

TEST_CASE("who waits for room is told when a message has been received at once, and only then", "[p2p][unit]") {
    Pair pair(kSmallLane);
    REQUIRE(pair.a.send_at_once({1}));
    Values large(200, 7);
    const auto sent = pair.a.post(true, buffer(std::span(large)));
    pair.a.progress();
    CHECK_FALSE(pair.b.peer.has_made_room());
    Values got{-1};
    REQUIRE(pair.b.receive_at_once(buffer(std::span(got))) == Look::kTaken);
    CHECK(pair.b.peer.has_made_room());
    CHECK_FALSE(pair.b.peer.has_made_room());
}

// Both ends of sends and receives between two ranks of a node, step by step in one thread, so that nothing depends on
// time: which messages may be sent and received immediately, and which have to be posted.

#include "worker_lib/src/native/p2p/peer.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/shm/message_ring.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

using Values = std::vector<std::int64_t>;
using Look = p2p::Peer::Look;

struct Ring {
    explicit Ring(std::size_t capacity) : bytes(capacity) {}
    [[nodiscard]] RingMemory memory() { return {&control, bytes.data(), bytes.size()}; }
    RingControl control;
    std::vector<std::byte> bytes;
};

struct End {
    End(int rank, Ring& out, Ring& in)
        : own{rank, members, arena, node, listening, {}, {}},
          peer(own, 1 - rank, p2p::PeerMemory{}, std::make_unique<RingSink>(out.memory()),
               std::make_unique<RingSource>(in.memory(), WakerFence::kItself)) {}

    static std::vector<LocalRank> alone() {
        std::vector<LocalRank> ranks(1);
        ranks[0].segment = Segment::create();
        return ranks;
    }
    [[nodiscard]] TransferList batch(bool sends, Buffer buffer, int tag) {
        TransferList made;
        made.seq = ++last_seq;
        made.transfers.push_back({.sends = sends, .buffer = buffer, .peer = peer.rank(), .tag = tag});
        return made;
    }
    [[nodiscard]] bool send_immediately(Buffer buffer, int tag = 0) {
        const TransferList made = batch(true, buffer, tag);
        return peer.send_immediately(made, made.transfers.front());
    }
    [[nodiscard]] bool send_immediately(Values values, int tag = 0) { return send_immediately(Buffer(values), tag); }
    [[nodiscard]] Look receive_immediately(Buffer buffer, int tag = 0) {
        return peer.receive_immediately(batch(false, buffer, tag).transfers.front());
    }
    /// Posts a transfer of a work.
    std::shared_ptr<P2pWork> post(bool sends, Buffer buffer, int tag = 0) {
        auto work = std::make_shared<P2pWork>(batch(sends, buffer, tag), p2p::DoneTransfers{}, nullptr);
        peer.post({work, 0});
        return work;
    }
    void progress() {
        (void)peer.progress();
        for (p2p::PendingTransfer& one : own.finished) (void)one.work->finish(one.index);
        own.finished.clear();
    }

    const std::vector<Member> members{2};
    Node node{"world", 2, alone(), 0};
    HeapArena arena{node.ranks.local(0).segment};
    std::atomic<std::uint64_t> listening{0};
    std::uint64_t last_seq = 0;
    p2p::OwnRank own;
    p2p::Peer peer;
};

struct RingPair {
    explicit RingPair(std::size_t capacity) : rings{Ring(capacity), Ring(capacity)} {}
    /// Lets both make progress until nothing moves any more: a large message takes several passes.
    void progress() {
        for (int pass = 0; pass < 100; ++pass) {
            a.progress();
            b.progress();
        }
    }
    std::array<Ring, 2> rings;
    End a{0, rings[0], rings[1]};
    End b{1, rings[1], rings[0]};
};

constexpr std::size_t kSmallRing = 1024;
constexpr std::size_t kLargeRing = std::size_t{512} << 10;

}  // namespace

TEST_CASE("an immediate send neither splits nor overtakes a message that is being sent", "[p2p][unit]") {
    RingPair pair(kSmallRing);
    Values large(200, 7);
    Values got(200);
    const auto sent = pair.a.post(true, Buffer(large));
    pair.a.progress();  // part of it
    const auto received = pair.b.post(false, Buffer(got));
    pair.b.progress();
    REQUIRE_FALSE(sent->has_ended());
    CHECK_FALSE(pair.a.send_immediately(Values{8}));  // there would be room
    pair.progress();
    CHECK(sent->has_ended());
    CHECK(received->has_ended());
    CHECK(got == large);
    CHECK(pair.a.send_immediately(Values{8}));
}

TEST_CASE("an immediate send sends the whole message or nothing, by the room in the ring", "[p2p][unit]") {
    RingPair pair(kSmallRing);
    std::int64_t sent = 0;
    while (pair.a.send_immediately(Values(20, sent))) ++sent;
    CHECK(sent == 4);                                 // of 240 bytes with their frame
    CHECK_FALSE(pair.a.send_immediately(Values{1}));  // there is room for its 8 bytes, not for their frame
    for (std::int64_t i = 0; i < sent; ++i) {
        Values got(20);
        CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kTaken);
        CHECK(got == Values(20, i));
    }
    Values got(20);
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kNothing);
    CHECK(pair.a.send_immediately(Values(20)));
}

TEST_CASE("immediate messages count against the eager window, and credit is sent back", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values message(ProcessGroup::kEagerBytes / sizeof(std::int64_t), 5);
    const Buffer all = Buffer(message);
    constexpr int kFit = ProcessGroup::kEagerWindow / (ProcessGroup::kEagerBytes + sizeof(Frame));
    int sent = 0;
    while (sent < 2 * kFit && pair.a.send_immediately(all)) ++sent;
    REQUIRE(sent == kFit);
    int taken = 0;
    while (taken < sent && pair.b.receive_immediately(all) == Look::kTaken) ++taken;
    CHECK(taken == kFit / 2);  // the next one has to send credit
    const auto next = pair.b.post(false, all);
    pair.progress();
    CHECK(next->has_ended());
    for (sent = 0; sent < 2 * kFit && pair.a.send_immediately(all);) ++sent;
    CHECK(sent == kFit / 2 + 1);
    Values long_one(message.size() + 1);
    CHECK_FALSE(pair.a.send_immediately(Buffer(long_one)));
}

TEST_CASE("an unexpected message is received before a later one of its tag in the ring", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values got{-1};
    REQUIRE(pair.a.send_immediately(Values{1}, 1));
    REQUIRE(pair.a.send_immediately(Values{2}, 2));
    CHECK(pair.b.receive_immediately(Buffer(got), 2) == Look::kOther);
    const auto second = pair.b.post(false, Buffer(got), 2);
    pair.b.progress();  // the first one is unexpected
    REQUIRE(second->has_ended());
    CHECK(got == Values{2});
    REQUIRE(pair.a.send_immediately(Values{3}, 1));
    CHECK(pair.b.receive_immediately(Buffer(got), 1) == Look::kOther);
    const auto first = pair.b.post(false, Buffer(got), 1);
    CHECK(got == Values{1});
    CHECK(pair.b.receive_immediately(Buffer(got), 1) == Look::kTaken);
    CHECK(got == Values{3});
}

TEST_CASE("beside many unexpected messages no immediate receive is tried", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values got{-1};
    for (int i = 0; i < 8; ++i) REQUIRE(pair.a.send_immediately(Values{i}, 1));
    pair.b.progress();
    REQUIRE(pair.a.send_immediately(Values{10}, 2));
    CHECK(pair.b.receive_immediately(Buffer(got), 2) == Look::kTaken);
    REQUIRE(pair.a.send_immediately(Values{9}, 1));
    pair.b.progress();
    REQUIRE(pair.a.send_immediately(Values{11}, 2));
    CHECK(pair.b.receive_immediately(Buffer(got), 2) == Look::kOther);
    CHECK(got == Values{10});
}

TEST_CASE("the middle of a message is not taken for a frame, even if it looks like one", "[p2p][unit]") {
    RingPair pair(kSmallRing);
    Frame fake;
    fake.dtype = DType::I64;
    fake.count = 1;
    fake.bytes = sizeof(std::int64_t);
    constexpr std::size_t kBefore = 64;  // so that the first part that fits into the ring ends with a whole frame
    static_assert((kSmallRing - sizeof(Frame) - kBefore) % sizeof(Frame) == 0);
    std::vector<std::byte> large(kBefore + 20 * sizeof(Frame));
    for (std::size_t at = kBefore; at < large.size(); at += sizeof(Frame)) std::memcpy(&large[at], &fake, sizeof fake);
    std::vector<std::byte> whole(large.size());
    const auto sent = pair.a.post(true, {large.data(), large.size(), DType::U8}, 1);
    pair.a.progress();
    pair.b.progress();
    pair.a.progress();
    std::int64_t got = -1;
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kOther);
    CHECK(got == -1);
    const auto received = pair.b.post(false, {whole.data(), whole.size(), DType::U8}, 1);
    pair.progress();
    CHECK(received->has_ended());
    CHECK(whole == large);
}

TEST_CASE("a partly arrived message is not received immediately", "[p2p][unit]") {
    RingPair pair(kSmallRing);
    Values large(200, 7);
    Values got(200, -1);
    const auto sent = pair.a.post(true, Buffer(large));
    pair.a.progress();
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kNothing);
    CHECK(got == Values(200, -1));
    const auto received = pair.b.post(false, Buffer(got));
    pair.progress();
    CHECK(received->has_ended());
    CHECK(got == large);
}

TEST_CASE("a message that does not fit is not received immediately, and is a mismatch afterwards", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values got(2, -1);
    REQUIRE(pair.a.send_immediately(Values{1}));
    std::array<double, 1> other_type{};
    CHECK(pair.b.receive_immediately(Buffer(other_type)) == Look::kOther);
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kOther);
    CHECK(pair.b.receive_immediately(Buffer(got[0]), 1) == Look::kOther);
    (void)pair.b.post(false, Buffer(got));
    CHECK_THROWS_AS(pair.b.progress(), Error);
    CHECK(got == Values(2, -1));
}

TEST_CASE("an offer is not received immediately", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values large(ProcessGroup::kEagerBytes / sizeof(std::int64_t) + 1, 7);
    Values got(large.size(), -1);
    CHECK_FALSE(pair.a.send_immediately(large));
    const auto sent = pair.a.post(true, Buffer(large));
    pair.a.progress();
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kOther);
    const auto received = pair.b.post(false, Buffer(got));
    pair.progress();
    CHECK(got == large);
}

TEST_CASE("an empty message that is only offered is not received immediately", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Values none;
    std::int64_t sent = 0;
    while (pair.a.send_immediately(Values{sent, sent}, 1)) ++sent;
    REQUIRE_FALSE(pair.a.send_immediately(none));
    pair.b.progress();  // all are unexpected, and are received only when the sender has seen no room
    const auto empty = pair.a.post(true, Buffer(none));
    pair.a.progress();
    Values got(2);
    for (std::int64_t i = 0; i < sent; ++i) (void)pair.b.post(false, Buffer(got), 1);
    CHECK(got == Values(2, sent - 1));
    CHECK(pair.b.receive_immediately(Buffer(none)) == Look::kOther);
    const auto received = pair.b.post(false, Buffer(none));
    pair.progress();
    CHECK(received->has_ended());
    CHECK(empty->has_ended());
}

TEST_CASE("a frame that contradicts itself is refused, not received immediately", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    Frame frame;
    frame.dtype = DType::I64;
    frame.count = 1;
    frame.bytes = sizeof(std::int64_t);
    SECTION("no frame") { frame.magic = 7; }
    SECTION("more or less than so many elements") { frame.bytes = 1; }
    SECTION("more or less elements than so many bytes") { frame.count = 2; }
    RingSink stranger(pair.rings[0].memory());
    const std::array<std::byte, 8> body{};
    REQUIRE(stranger.push(std::as_bytes(std::span(&frame, 1)), body) == sizeof frame + 8);
    std::int64_t got = -1;
    CHECK(pair.b.receive_immediately(Buffer(got)) == Look::kOther);
    (void)pair.b.post(false, Buffer(got));
    CHECK_THROWS_AS(pair.b.progress(), Error);
}

TEST_CASE("a sender without room is woken after an immediate receive, and only then", "[p2p][unit]") {
    RingPair pair(kSmallRing);
    REQUIRE(pair.a.send_immediately(Values{1}));
    Values large(200, 7);
    const auto sent = pair.a.post(true, Buffer(large));
    pair.a.progress();
    CHECK_FALSE(pair.b.peer.has_made_room());
    Values got{-1};
    REQUIRE(pair.b.receive_immediately(Buffer(got)) == Look::kTaken);
    CHECK(pair.b.peer.has_made_room());
    CHECK_FALSE(pair.b.peer.has_made_room());
}

TEST_CASE("a long tag is cut between two characters of UTF-8, with a mark", "[p2p][unit]") {
    RingPair pair(kLargeRing);
    const std::string prefix(GENERATE(range(std::size_t{0}, std::size_t{3})), 'x');
    Values values{1};
    TransferList batch = pair.a.batch(true, Buffer(values), 0);
    batch.label = prefix + "€€€€€€€€€€";
    REQUIRE(pair.a.peer.send_immediately(batch, batch.transfers.front()));
    RingSource source(pair.rings[0].memory(), WakerFence::kItself);
    Frame frame;
    REQUIRE(source.pull(std::as_writable_bytes(std::span(&frame, 1))) == sizeof frame);
    const std::string sent(frame.name.data(), ::strnlen(frame.name.data(), frame.name.size()));
    CAPTURE(prefix, sent);
    REQUIRE_THAT(sent, Catch::EndsWith("…"));
    CHECK(batch.label.starts_with(sent.substr(0, sent.size() - std::strlen("…"))));
    CHECK((sent.size() - prefix.size()) % std::strlen("€") == 0);
}

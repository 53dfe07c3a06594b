// The memory of the store: hash, table, blocks, replies.
#include "rendezvous/store/engine/table.hpp"

#include <array>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "rendezvous/store/codec/reply.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;

const std::string kLarge(3 * kLargeBytes + 5, 'L');

/// Sends the first bytes of `reply` as the kernel might: `most` at a time.
std::string sent_in_pieces(Reply reply, std::size_t most) {
    std::string out;
    while (!reply.empty()) {
        std::array<iovec, 8> room{};
        std::size_t taken = 0;
        for (const iovec& piece : reply.next(room, most)) {
            out.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
            taken += piece.iov_len;
        }
        REQUIRE((taken > 0 && taken <= most));
        reply.sent(taken);
    }
    return out;
}

TEST_CASE("hash: SipHash's own vectors") {
    const HashSeed seed{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    std::string text;
    for (int i = 0; i < 15; ++i) text += static_cast<char>(i);
    CHECK(siphash<2, 4>(seed, text) == 0xa129ca6149be45e5u);
    CHECK(siphash<2, 4>(seed, "") == 0x726fdb47dd0e0e31u);
    CHECK(hash_of(seed, "/a") != hash_of({seed.first, seed.second + 1}, "/a"));
}

TEST_CASE("table: any sequence of changes leaves what a map would hold") {
    const auto seed = GENERATE(take(5, random(0u, 0xffffffffu)));
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::map<std::string, std::string> model;
    Table table({seed, 1});
    for (int step = 0; step < 40000; ++step) {
        // It grows to thousands of keys and shrinks to a few, several times.
        const bool growing = step / 5000 % 2 == 0;
        const std::string key = "/key " + std::to_string(random() % 4000);
        const auto slot = table.locate(key);
        REQUIRE((slot.entry() != nullptr) == model.contains(key));
        if (random() % 100 < (growing ? 80u : 10u)) {
            std::string value(random() % 100 == 0 ? kLargeBytes + random() % 1000 : random() % 200, 'v');
            if (value.size() < kLargeBytes) {
                table.assign(slot, key, value);
            } else {
                Block block(0, nullptr);
                block.append(value);
                table.assign(slot, key, std::move(block));
            }
            model[key] = std::move(value);
        } else if (slot.entry()) {
            table.erase(slot);
            model.erase(key);
        }
        REQUIRE(table.size() == model.size());
    }
    std::size_t seen = 0;
    table.for_each([&](const Table::Entry& entry) {
        ++seen;
        CHECK(model.at(std::string(entry.key())) == entry.value());
    });
    CHECK(seen == model.size());
    for (const auto& [key, value] : model) CHECK(table.find(key)->value() == value);
}

TEST_CASE("block: grows, moves from heap to pages and back, and is counted") {
    BlockMemory memory;
    const std::size_t& counted = memory.bytes;
    {
        Block block(16, &memory);
        std::string all;
        while (all.size() < 3u << 20) {
            const std::string piece(1 + all.size() / 2, static_cast<char>('a' + all.size() % 26));
            block.append(piece);
            all += piece;
            REQUIRE(counted >= block.capacity());
        }
        CHECK(block.view() == all);
        block.trim();
        CHECK(block.view() == all);
        CHECK(counted < all.size() + all.size() / 16 + 8192);
        const Block other = block;
        CHECK(other.view().data() == block.view().data());
    }
    CHECK(counted == 0);
}

/// A block that grew to `size` bytes as the decoder lets it.
Block grown(BlockMemory& memory, std::size_t size, char with) {
    Block block(4096, &memory);
    while (block.size() < size) {
        if (block.room().empty()) block.grow(size);
        const std::size_t more = std::min(block.room().size(), size - block.size());
        std::memset(block.room().data(), with, more);
        block.commit(more);
    }
    return block;
}

TEST_CASE("block: the pages of a freed large one are reused for the next one of about its size") {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    BlockMemory memory;
    Block first = grown(memory, 8 * kMiB, 'a');
    const char* const slot = first.view().data();
    first = {};
    CHECK(memory.bytes == 0);
    REQUIRE_FALSE(memory.spare.empty());
    CHECK(grown(memory, 3 * kMiB, 'b').view().data() != slot);
    CHECK(grown(memory, 9 * kMiB, 'c').view() == std::string(9 * kMiB, 'c'));
    CHECK(memory.spare.fitting(8 * kMiB) > 9 * kMiB);  // the larger one has replaced it
    {
        Block next = grown(memory, 6 * kMiB, 'd');
        CHECK(memory.spare.empty());
        next.trim();
        CHECK(next.view() == std::string(6 * kMiB, 'd'));
        CHECK(memory.bytes < 7 * kMiB);
    }
    CHECK(memory.bytes == 0);
    memory.spare.drop();
    CHECK(memory.spare.empty());
    static_cast<void>(grown(memory, 3 * kMiB, 'e'));
    static_cast<void>(grown(memory, 65 * kMiB, 'f'));
    CHECK(memory.spare.empty());  // too small, too large
}

TEST_CASE("reply: its bytes are sent in order, whatever the pieces") {
    Block block(0, nullptr);
    block.append(kLarge);
    Reply reply;
    reply.bytes(std::string_view("first"));
    reply.bytes(block);
    reply.bytes(block);
    reply.number<std::int64_t>(7);
    const std::string whole = bytes("first") + bytes(kLarge) + bytes(kLarge) + number(7);
    CHECK(reply.size() == whole.size());
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, kLargeBytes, kLarge.size() + 8, whole.size()}) {
        CAPTURE(most);
        CHECK(sent_in_pieces(reply, most) == whole);
    }
}

TEST_CASE("reply: the memory of a large one is given back") {
    Reply reply;
    for (int i = 0; i < 1000; ++i) reply.bytes(std::string_view(kLarge).substr(0, 1000));
    reply.sent(reply.size());
    reply.clear();
    CHECK(reply.held_bytes() <= 256 << 10);
}

/// The large pieces of a reply, as the kernel is given them.
std::string_view large_piece(const Reply& reply) {
    std::array<iovec, 8> room{};
    for (const iovec& piece : reply.next(room, reply.size())) {
        if (piece.iov_len >= kLargeBytes) return {static_cast<const char*>(piece.iov_base), piece.iov_len};
    }
    return {};
}

/// A decoder and an engine with their count of memory.
struct CountedStore {
    Options options;
    BlockMemory memory;
    const std::size_t& counted = memory.bytes;
    Decoder decoder{options, &memory};
    Engine engine{options.limits, {}, &memory};

    /// Serves the next request and returns its reply.
    Reply serve() {
        Reply reply;
        const auto request = decoder.next();
        REQUIRE((request.has_value() && request->has_value()));
        REQUIRE(engine.apply(ConnectionId{1}, **request, reply).has_value());
        return reply;
    }
    [[nodiscard]] bool more() { return decoder.next().value().has_value(); }
    Reply ask(const std::string& bytes) {
        decoder.feed(bytes);
        Reply reply = serve();
        REQUIRE_FALSE(more());
        return reply;
    }
};

TEST_CASE("large values: received into their final memory, sent from there, never copied") {
    CountedStore store;
    const std::string set = validate() + request(kSet, "/a", std::string(1 << 20, 'v'));
    const auto first = std::string_view(set).substr(0, 100);
    store.decoder.feed(first);
    REQUIRE_FALSE(store.more());
    std::size_t at = first.size();
    const char* last_place = nullptr;
    while (at < set.size()) {
        const auto room = store.decoder.room();
        REQUIRE_FALSE(room.empty());
        const std::size_t size = std::min(room.size(), set.size() - at);
        std::memcpy(room.data(), set.data() + at, size);
        last_place = room.data() + size;
        store.decoder.received(size);
        at += size;
    }
    CHECK(store.decoder.room().empty());
    CHECK(store.serve().empty());
    const Reply one = store.ask(request(kGet, "/a"));
    const Reply other = store.ask(request(kMultiGet, Keys{"/b", "/a"}));
    CHECK(large_piece(one).data() + large_piece(one).size() == last_place);
    CHECK(large_piece(other).data() == large_piece(one).data());
    CHECK(one.held_bytes() < 1000);
}

TEST_CASE("large values: R3, room grows with the bytes that have arrived, not with the announced length") {
    CountedStore store;
    const std::string set = validate() + request(kSet, "/a", std::string(60u << 20, 'v'));
    for (std::size_t size = 64; size < 1u << 20; size *= 2) {
        Decoder decoder(store.options, &store.memory);
        decoder.feed(std::string_view(set).substr(0, size));
        REQUIRE_FALSE(decoder.next().value().has_value());
        CHECK(store.counted <= 2 * size + 8192);
    }
    CHECK(store.counted == 0);
}

TEST_CASE("large values: cut anywhere, with requests before and behind them") {
    const std::string all = request(kSet, "/x", "small") + request(kSet, "/a", kLarge) + request(kGet, "/a") +
                            request(kAppend, "/a", kLarge) + request(kCompareSet, "/a", kLarge + kLarge, kLarge + "!") +
                            request(kGet, "/x") + request(kQueuePush, "/q", kLarge) + request(kQueuePop, "/q");
    const std::string replies = bytes(kLarge) + bytes(kLarge + "!") + bytes("small") + number(1) + bytes(kLarge);
    const auto piece = GENERATE(std::size_t{1}, std::size_t{13}, std::size_t{4096}, std::size_t{65536});
    CAPTURE(piece);
    Rig rig;
    rig.connect_modern("A");
    for (std::size_t at = 0; at < all.size(); at += piece) rig.send('A', std::string_view(all).substr(at, piece));
    CHECK(rig.received('A') == replies);
    for (std::size_t cut = all.size() - 200; cut < all.size(); ++cut) {
        Rig cut_rig;
        cut_rig.connect_modern("A");
        cut_rig.send('A', std::string_view(all).substr(0, cut));
        cut_rig.send('A', std::string_view(all).substr(cut));
        REQUIRE(cut_rig.received('A') == replies);
    }
}

TEST_CASE("large values: a reply in progress keeps the value of its request") {
    CountedStore store;
    store.ask(validate() + request(kSet, "/a", kLarge));
    Reply before = store.ask(request(kGet, "/a"));
    store.ask(request(kAppend, "/a", "!"));
    const Reply after = store.ask(request(kGet, "/a"));
    store.ask(request(kSet, "/a", "small"));
    CHECK(before.text() == bytes(kLarge));
    CHECK(after.text() == bytes(kLarge + "!"));
    CHECK(store.engine.block_bytes() == 0);
    CHECK(store.counted > 2 * kLarge.size());  // both live on in the replies, and are counted
    before.clear();
    CHECK(store.counted < 3 * kLarge.size());
}

TEST_CASE("large values: a block that the store did not keep is freed with its request") {
    const std::string unwanted = request(kCompareSet, "/a", "other", kLarge);
    const std::string next = GENERATE(std::string(), request(kGet, "/a").substr(0, 5));
    CountedStore store;
    store.ask(validate() + request(kSet, "/a", "1"));
    store.decoder.feed(std::string_view(unwanted).substr(0, 100));
    REQUIRE_FALSE(store.more());
    const std::string rest = unwanted.substr(100) + next;
    store.decoder.feed(rest);
    CHECK(store.serve().text() == bytes("1"));
    REQUIRE_FALSE(store.more());
    CHECK(store.counted == 0);  // however long its connection is idle now
}

TEST_CASE("large values: an unshared one grows in place when it is appended to") {
    CountedStore store;
    store.ask(validate() + request(kSet, "/a", kLarge));
    for (int i = 0; i < 100; ++i) store.ask(request(kAppend, "/a", std::string(100, 'x')));
    const char* const slot = large_piece(store.ask(request(kGet, "/a"))).data();
    store.ask(request(kAppend, "/a", "y"));
    CHECK(large_piece(store.ask(request(kGet, "/a"))).data() == slot);
    CHECK(store.engine.block_bytes() == store.counted);  // with the room that it has to grow
    CHECK(store.engine.bytes() == 2 + kLarge.size() + 100 * 100 + 1 + kEntryBytes);
    store.ask(request(kDeleteKey, "/a"));
    CHECK(store.engine.block_bytes() == 0);
    CHECK(store.engine.bytes() == 0);
    CHECK(store.counted == 0);
}

TEST_CASE("R15: keys, queue elements and waiters are limited in number") {
    Options options;
    options.limits.store_keys = 3;
    options.limits.waiters = 2;
    Rig rig(options);
    rig.connect_modern("ABCDE");
    rig.send('A', request(kSet, "/1", "") + request(kSet, "/2", "") + request(kQueuePush, "/q", ""));
    rig.send('A', request(kSet, "/1", "again"));
    CHECK_FALSE(rig.closed('A'));
    rig.send('B', request(kSet, "/3", ""));
    CHECK(rig.closed('B'));
    rig.send('C', request(kQueuePush, "/q", ""));
    CHECK(rig.closed('C'));
    rig.send('D', request(kWait, Keys{"/x", "/y"}));
    CHECK_FALSE(rig.closed('D'));
    rig.send('E', request(kWait, Keys{"/x"}));
    CHECK(rig.closed('E'));
    CHECK(rig.ask('A', request(kQueuePop, "/q")) == number(1) + bytes(""));
    CHECK(rig.ask('A', request(kAdd, "/n", std::int64_t{1})) == number(1));
}

}  // namespace
}  // namespace ddprun::store::test

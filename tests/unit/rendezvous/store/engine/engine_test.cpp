// Effects of the requests: values, counters, queues, limits. Waiting is in waits_test.cpp.
#include "rendezvous/store/engine/engine.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;

struct Modern : Rig {
    explicit Modern(std::string_view names, const Options& options = {}) : Rig(options) { connect_modern(names); }
};

Options small_store(std::size_t store_bytes) {
    Options options;
    options.limits.store_bytes = store_bytes;
    return options;
}

TEST_CASE("R1: a half sent request does not delay other connections") {
    Modern rig("AB");
    const std::string half = request(kSet, std::string(100, 'k'), "v").substr(0, 1 + 8 + 4);
    CHECK(rig.ask('A', half).empty());
    CHECK(rig.ask('B', request(kGetNumKeys)) == number(0));
}

TEST_CASE("R7: GET and MULTI_GET of a missing key answer the empty value") {
    Modern rig("A");
    CHECK(rig.ask('A', request(kGet, "/none")) == bytes(""));
    rig.send('A', request(kSet, "/a", "1"));
    CHECK(rig.ask('A', request(kMultiGet, Keys{"/none", "/a"})) == bytes("") + bytes("1"));
    CHECK_FALSE(rig.closed('A'));
}

TEST_CASE("R9: MULTI_SET does nothing until it is complete, then everything") {
    Modern rig("AB");
    const std::string whole = request(kMultiSet, Pairs{{"/a", "1"}, {"/b", "2"}, {"/a", "3"}});
    rig.send('A', whole.substr(0, whole.size() - 1));
    CHECK(rig.ask('B', request(kGetNumKeys)) == number(0));
    rig.send('A', whole.substr(whole.size() - 1));
    CHECK(rig.ask('B', request(kMultiGet, Keys{"/a", "/b"})) == bytes("3") + bytes("2"));
}

TEST_CASE("R9: a MULTI_SET that the store has no room for stores nothing") {
    Modern rig("AB", small_store(1000));
    rig.send('A', request(kMultiSet, Pairs{{"/a", "1"}, {"/b", std::string(900, 'v')}}));
    CHECK(rig.closed('A'));
    CHECK(rig.ask('B', request(kGetNumKeys)) == number(0));
}

TEST_CASE("R14: a request that its connection did not finish has no effect") {
    Modern rig("AB");
    const std::string whole = request(kSet, "/a", "value");
    rig.send('A', whole.substr(0, whole.size() - 1));
    rig.close('A');
    CHECK(rig.ask('B', request(kCheck, Keys{"/a"})) == "\1");
}

TEST_CASE("ADD reads numbers as strtoll does") {
    Modern rig("A");
    const auto [text, sum] = GENERATE(
        table<std::string, std::int64_t>({{"12abc", 13},
                                          {" +7", 8},
                                          {"\t\n\v\f\r -3", -2},
                                          {"0x10", 1},
                                          {"00012", 13},
                                          {"-0", 1},
                                          {"7 8", 8},
                                          {std::string("5\0"
                                                       "9",
                                                       3),
                                           6},
                                          {"9223372036854775807", std::numeric_limits<std::int64_t>::min()},
                                          {"-9223372036854775808", std::numeric_limits<std::int64_t>::min() + 1}}));
    CAPTURE(text);
    rig.send('A', request(kSet, "/v", text));
    CHECK(rig.ask('A', request(kAdd, "/v", std::int64_t{1})) == number(sum));
    CHECK(rig.ask('A', request(kGet, "/v")) == bytes(std::to_string(sum)));
}

TEST_CASE("ADD and BARRIER on a value that is not a number close the connection and leave the value") {
    const auto text = GENERATE(as<std::string>{}, "", "abc", " ", "+", "-", "+-1", "--1", "9223372036854775808",
                               "-9223372036854775809", "99999999999999999999999");
    const auto bad = GENERATE(request(kAdd, "/v", std::int64_t{1}), request(kBarrier, "/v", std::int64_t{2}));
    CAPTURE(text);
    Modern rig("AB");
    rig.send('B', request(kSet, "/v", text));
    CHECK(rig.ask('A', bad).empty());
    CHECK(rig.closed('A'));
    CHECK(rig.ask('B', request(kGet, "/v")) == bytes(text));
}

TEST_CASE("ADD of 0 creates the key, and sums wrap around both ways") {
    Modern rig("A");
    CHECK(rig.ask('A', request(kAdd, "/n", std::int64_t{0})) == number(0));
    CHECK(rig.ask('A', request(kGet, "/n")) == bytes("0"));
    const auto least = std::numeric_limits<std::int64_t>::min();
    CHECK(rig.ask('A', request(kAdd, "/n", least)) == number(least));
    CHECK(rig.ask('A', request(kAdd, "/n", std::int64_t{-1})) == number(std::numeric_limits<std::int64_t>::max()));
}

TEST_CASE("COMPARE_SET treats the empty value as a value") {
    Modern rig("A");
    rig.send('A', request(kSet, "/c", ""));
    CHECK(rig.ask('A', request(kCompareSet, "/c", "", "v")) == bytes("v"));
    CHECK(rig.ask('A', request(kCompareSet, "/c", "", "w")) == bytes("v"));
    CHECK(rig.ask('A', request(kCompareSet, "/c", "v", "")) == bytes(""));
    CHECK(rig.ask('A', request(kCheck, Keys{"/c"})) == std::string(1, '\0'));
}

TEST_CASE("CHECK and WAIT of no keys answer at once") {
    Modern rig("A");
    CHECK(rig.ask('A', request(kCheck, Keys{})) == std::string(1, '\0'));
    CHECK(rig.ask('A', request(kWait, Keys{})) == std::string(1, '\0'));
}

TEST_CASE("queues are first-in first-out and apart from the keys") {
    Modern rig("A");
    rig.send('A', request(kQueuePush, "/q", "1"));
    rig.send('A', request(kQueuePush, "/q", "2"));
    CHECK(rig.ask('A', request(kQueueLength, "/q")) == number(2));
    CHECK(rig.ask('A', request(kGetNumKeys)) == number(0));
    CHECK(rig.ask('A', request(kDeleteKey, "/q")) == number(0));
    CHECK(rig.ask('A', request(kGet, "/q")) == bytes(""));
    CHECK(rig.ask('A', request(kCheck, Keys{"/q"})) == std::string(1, '\0'));
    CHECK(rig.ask('A', request(kQueuePop, "/q")) == number(2) + bytes("1"));
    CHECK(rig.ask('A', request(kQueuePop, "/q")) == number(1) + bytes("2"));
    CHECK(rig.ask('A', request(kQueuePop, "/q")) == number(0));
    CHECK(rig.ask('A', request(kCheck, Keys{"/q"})) == "\1");
}

TEST_CASE("LIST_KEYS names every key once") {
    Modern rig("A");
    CHECK(rig.ask('A', request(kListKeys)) == number(0));
    rig.send('A', request(kAdd, "init/", std::int64_t{1}) + request(kSet, "/a", "x") + request(kQueuePush, "/q", "x"));
    CHECK(rig.received('A') == number(1));
    const std::string listed = rig.ask('A', request(kListKeys));
    CHECK((listed == number(2) + bytes("init/") + bytes("/a") || listed == number(2) + bytes("/a") + bytes("init/")));
}

TEST_CASE("R15: a full store closes a connection that stores more, and serves the others") {
    Modern rig("ABCDE", small_store(2000));
    rig.send('A', request(kSet, "/a", std::string(1500, 'v')));
    CHECK_FALSE(rig.closed('A'));
    rig.send('B', request(kSet, "/b", std::string(1500, 'v')));
    CHECK(rig.closed('B'));
    rig.send('C', request(kQueuePush, "/q", std::string(1500, 'v')));
    CHECK(rig.closed('C'));
    rig.send('D', request(kAppend, "/a", std::string(1500, 'v')));
    CHECK(rig.closed('D'));
    rig.send('E', request(kWait, Keys{"/1", "/2", "/3", "/4", "/5"}));  // awaited names count too
    CHECK(rig.closed('E'));
    CHECK(rig.ask('A', request(kGetNumKeys)) == number(1));
}

TEST_CASE("R15: deleted, popped and overwritten values and ended waits free their room") {
    Modern rig("AB", small_store(4000));
    for (int round = 0; round < 100; ++round) {
        rig.send('A', request(kSet, "/a", std::string(1000, 'v')));
        rig.send('A', request(kAppend, "/a", std::string(1000, 'v')));
        rig.send('A', request(kSet, "/a", "small"));
        rig.send('A', request(kQueuePush, "/q", std::string(1000, 'v')) + request(kQueuePop, "/q"));
        rig.send('A', request(kMultiSet, Pairs{{"/b", std::string(500, 'v')}, {"/c", "x"}}));
        rig.send('B', request(kWait, Keys{"/x", "/y"}) + request(kCancelWait));
        rig.send('B', request(kBarrier, "/barrier", std::int64_t{2}));
        for (const char* key : {"/a", "/b", "/c", "/barrier"}) rig.send('A', request(kDeleteKey, key));
    }
    CHECK_FALSE(rig.closed('A'));
    CHECK_FALSE(rig.closed('B'));
    rig.close('B');
    CHECK(rig.engine().bytes() == 0);
}

TEST_CASE("R15: APPEND does not grow a value beyond its limit") {
    Options options;
    options.limits.value_bytes = 10;
    Modern rig("AB", options);
    rig.send('A', request(kAppend, "/a", "123456") + request(kAppend, "/a", "7890"));
    CHECK(rig.ask('B', request(kGet, "/a")) == bytes("1234567890"));
    rig.send('A', request(kAppend, "/a", "!"));
    CHECK(rig.closed('A'));
    CHECK(rig.ask('B', request(kGet, "/a")) == bytes("1234567890"));
}

TEST_CASE("R15: a reply above its limit closes the connection instead") {
    Options options;
    options.limits.reply_bytes = 100;
    Modern rig("ABC", options);
    rig.send('A', request(kSet, "/a", std::string(40, 'v')));
    CHECK(rig.ask('A', request(kMultiGet, Keys{"/a", "/a"})).size() == 96);
    CHECK(rig.ask('B', request(kMultiGet, Keys{"/a", "/a", "/a"})).empty());
    CHECK(rig.closed('B'));
    for (const char c : std::string("123456789")) rig.send('A', request(kSet, std::string("/key ") + c, ""));
    CHECK(rig.ask('C', request(kListKeys)).empty());
    CHECK(rig.closed('C'));
}

}  // namespace
}  // namespace ddprun::store::test

// Waiting: the rules W1 to W7, R8, R10 and R14, with the connections A, B and C.
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/store/rig.hpp"

namespace ddprun::store::test {
namespace {

using enum RequestKind;

const std::string kCanceled(1, wire::kWaitCanceled);

/// Three modern connections.
struct Store : Rig {
    Store() { connect_modern("ABC"); }
};

TEST_CASE("W1: WAIT is answered at once when all keys are there, else when the last one is set") {
    Store store;
    store.send('B', request(kSet, "/x", "1"));
    CHECK(store.ask('A', request(kWait, Keys{"/x"})) == kStop);
    CHECK(store.ask('A', request(kWait, Keys{"/x", "/y", "/z", "/y"})).empty());
    store.send('B', request(kSet, "/y", "1"));
    CHECK(store.received('A').empty());
    store.send('B', request(kAdd, "/z", std::int64_t{0}));
    CHECK(store.received('A') == kStop);
}

TEST_CASE("W2: every request that writes a key releases its waiters, each once") {
    const auto write =
        GENERATE(request(kSet, "/x", ""), request(kAdd, "/x", std::int64_t{0}), request(kAppend, "/x", ""),
                 request(kMultiSet, Pairs{{"/other", "1"}, {"/x", ""}}), request(kCompareSet, "/x", "", ""));
    Store store;
    store.send('A', request(kWait, Keys{"/x", "/x"}));
    store.send('C', request(kWait, Keys{"/x"}));
    CHECK(store.received('A').empty());
    store.send('B', write);
    CHECK(store.received('A') == kStop);
    CHECK(store.received('C') == kStop);
    store.send('B', write);
    CHECK(store.received('A').empty());
}

TEST_CASE("W2: an ADD that does not change the value releases them, too") {
    Store store;
    store.send('B', request(kAdd, "/x", std::int64_t{1}) + request(kDeleteKey, "/x"));
    store.send('A', request(kWait, Keys{"/x"}));
    store.send('B', request(kAdd, "/x", std::int64_t{0}));
    CHECK(store.received('A') == kStop);
}

TEST_CASE("R8: COMPARE_SET releases waiters when it creates the key and does not when it stores nothing") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    store.send('B', request(kCompareSet, "/x", "e", "v"));
    CHECK(store.received('A').empty());
    store.send('B', request(kCompareSet, "/x", "", "v"));
    CHECK(store.received('A') == kStop);
}

TEST_CASE("W3: a pushed element releases only the connection that has waited longest") {
    Store store;
    store.send('A', request(kWait, Keys{"/q"}));
    store.send('C', request(kWait, Keys{"/q"}));
    store.send('B', request(kQueuePush, "/q", "1"));
    CHECK(store.received('A') == kStop);
    CHECK(store.received('C').empty());
    store.send('B', request(kQueuePush, "/q", "2"));
    CHECK(store.received('A').empty());
    CHECK(store.received('C') == kStop);
}

TEST_CASE("W3: a connection that waits again has waited shortest") {
    Store store;
    store.send('A', request(kWait, Keys{"/q"}));
    store.send('C', request(kWait, Keys{"/q"}));
    store.send('A', request(kCancelWait) + request(kWait, Keys{"/q"}));
    CHECK(store.received('A') == kCanceled);
    store.send('B', request(kQueuePush, "/q", "1"));
    CHECK(store.received('A').empty());
    CHECK(store.received('C') == kStop);
}

TEST_CASE("W4: a key that was set counts, even when it is deleted before the others are set") {
    Store store;
    store.send('A', request(kWait, Keys{"/x", "/y"}));
    store.send('B', request(kSet, "/x", "1") + request(kDeleteKey, "/x") + request(kSet, "/y", "1"));
    CHECK(store.received('A') == kStop);
}

TEST_CASE("W5, R10: CANCEL_WAIT is answered at once, and the wait is over") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    CHECK(store.ask('A', request(kCancelWait)) == kCanceled);
    store.send('B', request(kSet, "/x", "1"));
    CHECK(store.received('A').empty());
    CHECK(store.ask('A', request(kCheck, Keys{"/x"})) == kStop);
}

TEST_CASE("W5: when the key was set first, both answers are sent, in order") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    store.send('B', request(kSet, "/x", "1"));
    store.send('A', request(kCancelWait));
    CHECK(store.received('A') == kStop + kCanceled);
}

TEST_CASE("W5: CANCEL_WAIT without a wait is answered too") {
    Store store;
    CHECK(store.ask('A', request(kCancelWait)) == kCanceled);
}

TEST_CASE("W6: another request of a waiting connection ends its wait without an answer") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    CHECK(store.ask('A', request(kGetNumKeys)) == number(0));
    store.send('B', request(kSet, "/x", "1"));
    CHECK(store.received('A').empty());
}

TEST_CASE("W6: a new WAIT takes the place of the old one") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    store.send('A', request(kWait, Keys{"/y"}));
    store.send('B', request(kSet, "/x", "1"));
    CHECK(store.received('A').empty());
    store.send('B', request(kSet, "/y", "1"));
    CHECK(store.received('A') == kStop);
}

TEST_CASE("W6: a connection that sets the key it waits for gets no answer to the wait") {
    Store store;
    store.send('A', request(kWait, Keys{"/x"}));
    CHECK(store.ask('A', request(kSet, "/x", "1")).empty());
    CHECK(store.ask('A', request(kGet, "/x")) == bytes("1"));
}

TEST_CASE("W6: a 1.13 client that gave up waiting is still served in order") {
    Rig rig;
    rig.send('A', request(5, Keys{"/x"}));
    CHECK(rig.ask('A', request(6)) == number(0));
    rig.send('B', request(0, "/x", "1"));
    CHECK(rig.received('A').empty());
}

TEST_CASE("W7, R14: a closed connection waits no more") {
    Store store;
    store.send('A', request(kWait, Keys{"/q"}));
    store.send('C', request(kWait, Keys{"/q"}));
    store.close('A');
    store.send('B', request(kQueuePush, "/q", "1"));
    CHECK(store.received('A').empty());
    CHECK(store.received('C') == kStop);  // not swallowed by the closed one
}

TEST_CASE("WAIT counts a queue that holds something as there") {
    Store store;
    store.send('B', request(kQueuePush, "/q", "1"));
    CHECK(store.ask('A', request(kWait, Keys{"/q"})) == kStop);
}

TEST_CASE("BARRIER releases all when the last one arrives, and counts on") {
    Store store;
    const std::string arrive = request(kBarrier, "/b", std::int64_t{3});
    CHECK(store.ask('A', arrive).empty());
    CHECK(store.ask('B', arrive).empty());
    CHECK(store.ask('C', arrive) == kStop);
    CHECK(store.received('A') == kStop);
    CHECK(store.received('B') == kStop);
    CHECK(store.ask('A', request(kGet, "/b")) == bytes("3"));
    CHECK(store.ask('A', arrive) == kStop);
}

TEST_CASE("BARRIER: neither the last arrival nor the connections that it releases need room") {
    Options options;
    options.limits.waiters = 2;
    Rig rig(options);
    rig.connect_modern("ABCD");
    const std::string arrive = request(kBarrier, "/b", std::int64_t{3});
    CHECK(rig.ask('A', arrive).empty());
    CHECK(rig.ask('B', arrive).empty());
    CHECK(rig.ask('C', arrive) == kStop);
    CHECK(rig.received('A') == kStop);
    CHECK(rig.received('B') == kStop);
    // A connection that would have to wait and finds no room is closed before it counts.
    rig.send('A', request(kWait, Keys{"/x", "/y"}));
    CHECK(rig.ask('D', request(kBarrier, "/other", std::int64_t{2})).empty());
    CHECK(rig.closed('D'));
    CHECK(rig.ask('B', request(kGet, "/other")) == bytes(""));
}

TEST_CASE("BARRIER: a connection that cancels stays counted") {
    Store store;
    const std::string arrive = request(kBarrier, "/b", std::int64_t{2});
    CHECK(store.ask('A', arrive).empty());
    CHECK(store.ask('A', request(kCancelWait)) == kCanceled);
    CHECK(store.ask('B', arrive) == kStop);
    CHECK(store.received('A').empty());
}

TEST_CASE("BARRIER: the first arrival creates the key without releasing connections that wait for it already") {
    Store store;
    store.send('C', request(kWait, Keys{"/b"}));
    store.send('A', request(kBarrier, "/b", std::int64_t{2}));
    CHECK(store.received('C').empty());
    CHECK(store.ask('B', request(kWait, Keys{"/b"})) == kStop);
    store.send('B', request(kBarrier, "/b", std::int64_t{2}));
    CHECK(store.received('C') == kStop);
    CHECK(store.received('A') == kStop);
}

}  // namespace
}  // namespace ddprun::store::test

// Which stranger makes room for another one.
#include "rendezvous/daemon/strangers.hpp"

#include <sys/socket.h>

#include <array>
#include <deque>

#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::daemon;
using namespace std::chrono_literals;

namespace {

struct Crowd {
    Strangers strangers;
    std::deque<Strangers::Place> places;
    std::vector<std::string> ended;
    TimePoint now = TimePoint() + 1h;

    /// Adds a stranger from `network` that can be ended, and has sent nothing at `socket`.
    void add(const std::string& network, bool local = false, int socket = -1) {
        places.push_back(strangers.add(network, local, now));
        places.back().allow_end(socket, [this, network] { ended.push_back(network); });
    }
    void add(const std::string& network, std::size_t count, bool local = false) {
        for (std::size_t i = 0; i < count; ++i) add(network, local);
    }
};

}  // namespace

TEST_CASE("strangers: beyond the limit the oldest one of the network with most of them is ended", "[daemon][unit]") {
    Crowd crowd;
    crowd.add("10.0.0.9");  // older, but alone
    for (int i = 0; i < 8; ++i) crowd.add("10.0.1." + std::to_string(i), kMaxStrangersPerNetwork - (i > 0));
    CHECK(crowd.strangers.make_room(crowd.now));
    crowd.add("10.0.2.1", kMaxStrangers - crowd.strangers.size());
    CHECK_FALSE(crowd.strangers.make_room(crowd.now));  // each may stay for a moment
    CHECK(crowd.ended.empty());
    crowd.now += kMinStay;
    CHECK(crowd.strangers.make_room(crowd.now));
    CHECK(crowd.ended == std::vector<std::string>{"10.0.1.0"});
    CHECK(crowd.strangers.size() == kMaxStrangers - 1);
    crowd.places.clear();
    CHECK(crowd.strangers.size() == 0);
}

TEST_CASE("strangers: of many that are alone the oldest one makes room, and each has time for a handshake",
          "[daemon][unit]") {
    Crowd crowd;
    for (std::size_t i = kMaxStrangers; i > 0; --i) {
        crowd.add("10.0.0." + std::to_string(i));
        crowd.now += 1us;
    }
    CHECK_FALSE(crowd.strangers.make_room(crowd.now + kMinStay));
    crowd.now += kStay;
    CHECK(crowd.strangers.make_room(crowd.now));
    CHECK(crowd.ended == std::vector<std::string>{"10.0.0.256"});
}

TEST_CASE("strangers: if those of the largest network may stay, another network makes room", "[daemon][unit]") {
    Crowd crowd;
    crowd.add("10.0.0.1");
    crowd.now += kStay;
    crowd.add("10.0.0.2", kMaxStrangers - 1, true);
    CHECK(crowd.strangers.make_room(crowd.now));
    CHECK(crowd.ended == std::vector<std::string>{"10.0.0.1"});
}

TEST_CASE("strangers: a network of other hosts has a limit of its own", "[daemon][unit]") {
    Crowd crowd;
    const bool local = GENERATE(true, false);
    crowd.add("10.0.0.1", kMaxStrangersPerNetwork, local);
    crowd.add("10.0.0.1", 8, local);
    CHECK(crowd.ended.empty());  // they came at the same time
    crowd.now += kMinStay;
    crowd.add("10.0.0.1", 8, local);
    CHECK(crowd.ended.size() == (local ? 0 : 8));
    CHECK(crowd.strangers.size() == kMaxStrangersPerNetwork + (local ? 16 : 8));
    crowd.add("10.0.0.2");
    CHECK(crowd.ended.size() == (local ? 0 : 8));
}

TEST_CASE("strangers: one host of IPv6 has a whole network of addresses", "[daemon][unit]") {
    const auto of = [](const char* address) { return network_of(boost::asio::ip::make_address(address)); };
    CHECK(of("2001:db8::1") == of("2001:db8::ffff:2"));
    CHECK(of("2001:db8::1") != of("2001:db8:0:1::1"));
    CHECK(of("fe80::1") != of("fe80::2"));  // the hosts of one link
    CHECK(of("10.0.0.1") != of("10.0.0.2"));
}

TEST_CASE("strangers: one that waits for this process is not ended", "[daemon][unit]") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const UniqueFd ours(ends[0]), theirs(ends[1]);
    REQUIRE(::send(theirs.get(), "G", 1, 0) == 1);
    Crowd crowd;
    crowd.add("10.0.0.1", false, ours.get());
    crowd.places.push_back(crowd.strangers.add("10.0.0.1", false, crowd.now));  // not served yet
    crowd.add("10.0.0.1", kMaxStrangers - 2, true);
    crowd.now += kMinStay;
    CHECK(crowd.strangers.make_room(crowd.now));
    CHECK(crowd.ended.size() == 1);
    crowd.places[2].forbid_end();
    CHECK(crowd.strangers.size() == kMaxStrangers - 1);
    char byte = 0;
    REQUIRE(::recv(ours.get(), &byte, 1, 0) == 1);
    crowd.places.pop_back();
    crowd.add("10.0.0.1", true);
    crowd.add("10.0.0.1", true);
    CHECK(crowd.strangers.make_room(crowd.now));
    CHECK(crowd.ended.size() == 2);
}

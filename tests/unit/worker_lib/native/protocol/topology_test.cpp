#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/native/net/sockets_per_peer.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

using namespace ddp::detail;

namespace {

std::vector<Member> members(const std::vector<std::string>& nodes) {
    std::vector<Member> list;
    for (const auto& node : nodes) {
        Member member;
        member.node = node;
        list.push_back(member);
    }
    return list;
}

using Nodes = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("ranks are grouped by node, nodes ordered by their first rank", "[native][unit]") {
    const auto topology = make_topology(members({"b", "b", "a", "b", "a"}), 4);
    CHECK(topology.nodes == Nodes{{0, 1, 3}, {2, 4}});
    CHECK(topology.own_node == 1);
    CHECK(topology.own_index == 1);
    CHECK(topology.carriers == 2);
    CHECK(topology.own_carries());
    CHECK(topology.counterpart(0) == 1);
    CHECK(topology.node_of(3) == 0);
    CHECK(topology.node_of(2) == 1);
}

TEST_CASE("ranks beyond the smallest node's size talk to no other node", "[native][unit]") {
    const auto nodes = members({"a", "a", "a", "b"});
    CHECK(make_topology(nodes, 0).own_carries());
    CHECK_FALSE(make_topology(nodes, 2).own_carries());
    CHECK_FALSE(make_topology(members({"a", "a"}), 0).own_carries());
}

TEST_CASE("few pairs of nodes get several sockets each, unless the user says how many", "[native][unit]") {
    const auto usual = SocketsPerPeer::parse(std::nullopt);
    CHECK(usual.text() == "usual");
    CHECK(usual.choose(2, 1) == 2);
    CHECK(usual.choose(3, 1) == 1);
    CHECK(usual.choose(2, 2) == 1);
    CHECK(usual.choose(100, 8) == 1);
    const auto own = SocketsPerPeer::parse("3");
    CHECK(own.text() == "3");
    CHECK(own.choose(2, 1) == 3);
    CHECK(own.choose(100, 8) == 3);
    CHECK(SocketsPerPeer::parse("").text() == "usual");
}

TEST_CASE("a member's record survives the store, anything else is refused", "[native][unit]") {
    const Member member{.node = "boot/3",
                        .hostname = "host",
                        .pid = 7,
                        .token = "secret",
                        .local_name = "ddp-1",
                        .address = "::1",
                        .port = 4711};
    const Member copy = decode_member(encode(member));
    CHECK(encode(copy) == encode(member));
    CHECK(copy.port == 4711);
    CHECK_THROWS_AS(decode_member(""), ddp::Error);
    CHECK_THROWS_AS(decode_member("a b not-a-pid d e f 1"), ddp::Error);
    const std::string cut = own_version() + " b 3 d e";
    CHECK_THROWS_WITH(decode_member(cut), Catch::Contains(cut));
}

TEST_CASE("the record of another version still gives host, pid and version", "[native][unit]") {
    const Member newer = decode_member("ddp/1.2.3/77 far 71 what comes then is its own matter");
    CHECK(name_of(1, newer) == "rank 1 (host far, pid 71)");
    CHECK(version_text(newer.version) == "1.2.3 (protocol 77)");
    const Member older =
        decode_member("0a1b/0 far 71 token name 127.0.0.1 1 2 3 usual usual");  // the format of an old version
    CHECK(name_of(1, older) == "rank 1 (host far, pid 71)");
    CHECK(version_text(older.version) == "an older version, which does not publish its number");
    CHECK_THAT(version_text(own_version()), Catch::Contains(" (protocol " + std::to_string(kProtocolVersion) + ")"));
}

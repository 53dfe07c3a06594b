// A peer whose host acknowledges nothing, as its connections show it. A filter that drops all packets which arrive at
// the peer's socket stands for the cut network.
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/flight_record_layout.hpp"
#include "tests/catch.hpp"
#include "tests/unit/worker_lib/native/net/links_rank.hpp"
#include "worker_lib/src/native/net/flow.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"

using namespace ddp::detail;
using namespace ddp::testing;
using namespace std::chrono_literals;
using ddprun::Clock;
using ddprun::UniqueFd;

namespace {

/// A connection over TCP on the loopback.
struct Wire {
    Wire() {
        int port = 0;
        const UniqueFd listener = listen_tcp("127.0.0.1", port).value();
        own = connect_tcp("127.0.0.1", port, Clock::now() + 10s).value();
        peer = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        REQUIRE(peer);
    }
    /// From now on the host of the peer gets nothing, and acknowledges nothing.
    void cut() const {
        sock_filter drop_all{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
        const sock_fprog program{.len = 1, .filter = &drop_all};
        REQUIRE(::setsockopt(peer.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
    }
    void mend() const {
        const int unused = 0;
        REQUIRE(::setsockopt(peer.get(), SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused) == 0);
    }
    void say() const { REQUIRE(::send(own.get(), "x", 1, MSG_NOSIGNAL) == 1); }

    UniqueFd own;
    UniqueFd peer;
};

bool eventually(const std::function<bool()>& done) {
    for (const auto until = Clock::now() + 20s; Clock::now() < until; (void)::poll(nullptr, 0, 20))
        if (done()) return true;
    return false;
}

Link link_to(UniqueFd socket, int global_rank) {
    Link link;
    link.socket = std::move(socket);
    link.name = "its peer";
    link.global_rank = global_rank;
    return link;
}

/// An operation whose entry in the flight record the test reads.
struct Recorded {
    explicit Recorded(Node& node) {
        slot.id = 7;
        operation.seq = 1;
        operation.deadline = Clock::now() + 60s;
        operation.record_entry = RecordEntry(&slot, group, 7, 1);
        node.progress.begin(operation);
    }
    [[nodiscard]] int unreachable() const { return ddprun::flight_record::unreachable_in(slot.failure.load()); }

    ddprun::flight_record::OperationSlot slot;
    ddprun::flight_record::GroupSlot group;
    Operation operation;
};

}  // namespace

TEST_CASE("a host that leaves data unanswered is silent after some seconds, until it answers", "[sockets]") {
    const Wire wire;
    wire.say();
    CHECK_FALSE(is_silent(peer_host(wire.own.get())));
    wire.cut();
    wire.say();
    const auto began = Clock::now();
    CHECK(eventually([&] { return is_silent(peer_host(wire.own.get())); }));
    CHECK(Clock::now() - began >= kUnreachableNoticed);
    wire.mend();
    CHECK(eventually([&] { return !is_silent(peer_host(wire.own.get())); }));
}

TEST_CASE("the host of a stopped process is not silent, although its buffers are full", "[sockets]") {
    const Wire wire;  // whose other end is not read
    const std::vector<char> bytes(1 << 20);
    while (::send(wire.own.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 ||
           wait_for(wire.own.get(), POLLOUT, Clock::now() + 500ms)) {
    }
    bool unanswered = false;
    // Its kernel answers probes, which follow each other ever more rarely.
    CHECK(eventually([&] {
        const PeerHost host = peer_host(wire.own.get());
        unanswered = unanswered || host.unanswered;
        return host.heard_ago >= kUnreachableNoticed;
    }));
    CHECK_FALSE(unanswered);
}

TEST_CASE("the other end of a connection without TCP is never silent", "[sockets]") {
    const Ends ends = pair_of_ends();
    CHECK_FALSE(is_silent(peer_host(ends[0].get())));
    CHECK_FALSE(peer_host(-1).unanswered);
}

TEST_CASE("a host is silent only if it is on all connections to the peer", "[sockets]") {
    Wire first;
    Wire second;
    first.cut();
    first.say();
    Link link = link_to(std::move(first.own), 1);
    link.more.push_back(std::move(second.own));
    CHECK(eventually([&] { return link.host_is_silent(); }));
    REQUIRE(::send(second.peer.get(), "x", 1, MSG_NOSIGNAL) == 1);
    CHECK_FALSE(link.host_is_silent());
}

TEST_CASE("the rank of a silent peer is read without overflow, whatever a worker has written", "[unit]") {
    using ddprun::flight_record::unreachable_in;
    using ddprun::flight_record::with_unreachable;
    STATIC_REQUIRE(unreachable_in(static_cast<ddprun::flight_record::Failure>(std::uint64_t{1} << 63)) == INT32_MAX);
    STATIC_REQUIRE(unreachable_in(with_unreachable(ddprun::flight_record::Failure::kTimedOut, 5)) == 5);
    STATIC_REQUIRE(unreachable_in(with_unreachable(ddprun::flight_record::Failure::kOther, -1)) == -1);
}

TEST_CASE("a silent peer is shown while an exchange waits, and no longer when it is done", "[native][unit]") {
    Wire silent;
    Wire other;
    silent.cut();
    std::map<int, Link> map;
    map.emplace(1, link_to(std::move(silent.own), 41));
    map.emplace(2, link_to(std::move(other.own), 42));
    Node node("world", 3, Rank::alone(0), 0);
    Links links("world", 0, std::move(map), node);
    std::map<int, Link> back;
    back.emplace(0, link_to(std::move(other.peer), 40));
    Node other_node("world", 3, Rank::alone(2), 0);
    Links other_links("world", 0, std::move(back), other_node);

    const std::vector<std::byte> out(16);
    std::vector<std::byte> in(16);
    Recorded own(node);
    auto exchange = std::async(std::launch::async, [&] {
        const OutMessage to{.rank = 1, .bytes = out};
        const InMessage from{.rank = 2, .bytes = in};
        links.exchange(own.operation, 0, std::span(&to, 1), std::span(&from, 1));
    });
    CHECK(eventually([&] { return own.unreachable() == 41; }));
    const Recorded others(other_node);
    const OutMessage message{.rank = 0, .bytes = out};
    other_links.exchange(others.operation, 0, std::span(&message, 1), {});
    exchange.get();
    CHECK(own.unreachable() == -1);
}

TEST_CASE("a connection that ends because the host does not answer names the peer", "[native][unit]") {
    const std::size_t bytes = GENERATE(16u, 32u << 20);  // the error is met while receiving, or while sending
    Wire wire;
    wire.cut();
    const int limit_ms = 500;
    REQUIRE(::setsockopt(wire.own.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms) == 0);
    std::map<int, Link> map;
    map.emplace(1, link_to(std::move(wire.own), 41));
    Node node("world", 2, Rank::alone(0), 0);
    Links links("world", 0, std::move(map), node);
    const std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(16);
    const Recorded recorded(node);
    const OutMessage to{.rank = 1, .bytes = out};
    const InMessage from{.rank = 1, .bytes = in};
    CHECK(links.unreachable() == -1);
    CHECK_THROWS_AS(links.exchange(recorded.operation, 0, std::span(&to, 1), std::span(&from, 1)), ddp::Error);
    CHECK(links.unreachable() == 41);
    links.finish_messages();
}

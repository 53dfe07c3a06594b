// Connections that do not belong to the group.

#include "worker_lib/src/native/net/handshake.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <span>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/leaks.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/no_descriptors.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/net/unproven.hpp"

using namespace ddp;
using namespace ddp::testing;
using ddprun::UniqueFd;
using std::chrono::seconds;

namespace {

ddprun::TimePoint soon() { return ddprun::Clock::now() + seconds(20); }

/// A store that pretends that ranks 0 and 1 have met, so that a rank goes on to publish its address.
std::shared_ptr<Store> store_of_two_who_met() {
    auto store = detail::make_local_store();
    store->set("ddp/0/of-2/rounds/1/full", "yes");
    store->set("ddp/0/of-2/rounds/1/outcome", "met");
    return store;
}

/// Rank 0 of two nodes waits for rank 1 at the address that it published.
struct WaitingRank {
    LocalWorld world{.ranks_per_node = {1, 1}};
    std::shared_ptr<Store> store = store_of_two_who_met();
    std::future<int> first = start(0);
    detail::Member member = detail::decode_member(store->get("ddp/0/of-2/world/member/0", seconds(20)));

    std::future<int> start(int rank) {
        return std::async(std::launch::async, [this, rank] {
            Context context(world.environment(rank), store, world.options());
            int sum = rank + 1;
            context.world().all_reduce(sum, ReduceOp::Sum).wait();
            return sum;
        });
    }
    /// A stranger's connection, after `bytes` were sent on it. A socket that is not the group's: the rank may close it.
    UniqueFd stranger(std::span<const std::byte> bytes) const {
        auto fd = detail::connect_tcp(member.address, member.port, soon());
        REQUIRE(fd.has_value());
        (void)detail::send_all(fd->get(), bytes, -1, soon());
        return std::move(*fd);
    }
};

/// Rank 0 of two, at its port.
struct ListeningRank {
    std::vector<detail::Member> members{2};
    UniqueFd listener;

    ListeningRank() {
        members[0].address = "127.0.0.1";
        auto opened = detail::listen_tcp(members[0].address, members[0].port);
        REQUIRE(opened.has_value());
        listener = std::move(*opened);
    }
    static detail::GroupSpec spec(int rank) {
        detail::GroupSpec spec;
        spec.name = "world";
        spec.rank = rank;
        spec.members = {0, 1};
        return spec;
    }
};

bool was_closed(const UniqueFd& socket) {
    std::byte byte{};
    UniqueFd none;
    const auto received = detail::receive_all(socket.get(), std::span(&byte, 1), none, soon());
    return !received && received.error().code != ddprun::Errc::kTimeout;
}

/// One byte, with copies of these descriptors.
template <std::size_t kCount>
void send_descriptors(int socket, const std::array<int, kCount>& descriptors) {
    char byte = 'x';
    iovec part{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(descriptors))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const extra = CMSG_FIRSTHDR(&message);
    extra->cmsg_level = SOL_SOCKET;
    extra->cmsg_type = SCM_RIGHTS;
    extra->cmsg_len = CMSG_LEN(sizeof(descriptors));
    std::memcpy(CMSG_DATA(extra), descriptors.data(), sizeof(descriptors));
    REQUIRE(::sendmsg(socket, &message, 0) == 1);
}

/// Two ends of a Unix socket.
struct Pair {
    Pair() {
        std::array<int, 2> ends{};
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
        near.reset(ends[0]);
        far.reset(ends[1]);
    }
    UniqueFd near;
    UniqueFd far;
};

}  // namespace

TEST_CASE("a rank that cannot accept connections reports why, at once", "[native][unit]") {
    detail::GroupSpec spec;
    spec.name = "world";
    spec.members = {0, 1};
    std::vector<detail::Member> members(2);
    members[0].address = "127.0.0.1";
    const auto listener = detail::listen_tcp(members[0].address, members[0].port);
    REQUIRE(listener.has_value());
    const auto client = detail::connect_tcp(members[0].address, members[0].port, soon());
    REQUIRE(client.has_value());
    const detail::HandshakeSpec place{.spec = spec, .members = members, .deadline = soon()};
    const NoDescriptorsLeft none;
    CHECK_THROWS_WITH(
        detail::meet_over_tcp(place, listener->get(), {1}, &detail::Member::port),
        Catch::Contains("cannot accept the connection of another rank: this process has too many open files. "
                        "Raise `ulimit -n`"));
    CHECK(ddprun::Clock::now() < place.deadline);
}

TEST_CASE("the oldest stranger is dropped if there are too many, or no descriptor is left", "[native][unit]") {
    int port = 0;
    const auto listener = detail::listen_tcp("127.0.0.1", port);
    REQUIRE(listener.has_value());
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::move(*detail::connect_tcp("127.0.0.1", port, soon())));
    std::vector<UniqueFd> waiting;
    const auto accept = [&](std::size_t most) {
        auto socket = detail::accept_unidentified(listener->get(), waiting.size(), most, [&](bool /*no_descriptor*/) {
            waiting.erase(waiting.begin());
            return true;
        });
        if (socket) waiting.push_back(std::move(socket));
    };
    accept(1);
    CHECK(waiting.size() == 1);
    accept(1);
    CHECK(waiting.size() == 1);
    CHECK(was_closed(clients[0]));
    const UniqueFd in_its_place(::dup(0));  // so that the one that is left is below the limit
    const NoDescriptorsLeft none;
    accept(2);
    CHECK(waiting.size() == 1);
    CHECK(was_closed(clients[1]));
    accept(2);  // no other connection waits: this one stays
    CHECK(waiting.size() == 1);
}

TEST_CASE("without a descriptor strangers make room first, then those that have not sent their proof in time",
          "[native][unit]") {
    const auto now = ddprun::Clock::now();
    std::vector<detail::Unproven> unproven(2);
    CHECK(detail::one_to_drop(unproven, true, now) == unproven.begin());
    unproven[0].answer = detail::Hello{};
    unproven[0].answered_at = now;
    CHECK(detail::one_to_drop(unproven, true, now) == unproven.begin() + 1);
    unproven[1] = {.answer = detail::Hello{}, .answered_at = now};
    CHECK(detail::one_to_drop(unproven, true, now) == unproven.end());
    CHECK(detail::one_to_drop(unproven, false, now) == unproven.begin());
    CHECK(detail::one_to_drop(unproven, true, now + detail::kProofTime) == unproven.begin());
    unproven[0].answered_at = now + std::chrono::seconds(1);  // it has connected first, and sent its Hello last
    CHECK(detail::one_to_drop(unproven, true, now + detail::kProofTime) == unproven.begin() + 1);
    CHECK(detail::one_to_drop(unproven, false, now) == unproven.begin() + 1);
}

TEST_CASE("a peer that sends several descriptors leaves none behind", "[native][unit]") {
    const Pair pair;
    const std::size_t before = open_descriptors();
    send_descriptors(pair.near.get(), std::array{0, 1});
    {
        std::byte byte{};
        UniqueFd passed;
        CHECK(detail::receive_some(pair.far.get(), std::span(&byte, 1), passed) == 1);
        CHECK(passed);
        CHECK(open_descriptors() == before + 1);
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("a passed descriptor for which there is no room is reported as an error", "[native][unit]") {
    const Pair pair;
    send_descriptors(pair.near.get(), std::array{0});
    const NoDescriptorsLeft none;
    std::byte byte{};
    UniqueFd passed;
    CHECK(detail::receive_some(pair.far.get(), std::span(&byte, 1), passed) == -1);
    CHECK(errno == EMFILE);
}

TEST_CASE("strangers on the port are closed, and the group still forms", "[native][unit]") {
    WaitingRank waiting;
    detail::Hello almost;
    almost.rank = 1;
    const std::array<std::byte, 200> garbage{};
    const UniqueFd silent = waiting.stranger({});
    const UniqueFd short_one = waiting.stranger(std::span(garbage).first(3));
    const UniqueFd long_one = waiting.stranger(garbage);
    const UniqueFd without_mac = waiting.stranger(std::as_bytes(std::span(&almost, 1)));
    auto second = waiting.start(1);
    CHECK(waiting.first.get() == 3);
    CHECK(second.get() == 3);
    CHECK(was_closed(long_one));
    CHECK(was_closed(without_mac));
    CHECK(was_closed(silent));
    CHECK(was_closed(short_one));
}

TEST_CASE("ranks to which a writer of the store gave different records have different keys", "[native][unit]") {
    std::vector<detail::Member> members = ListeningRank().members;
    members[0].node = members[0].hostname = members[0].token = members[0].local_name = "a";
    members[1] = members[0];
    members[1].address = "127.0.0.2";
    const detail::GroupKey lower(ListeningRank::spec(0), members);
    CHECK(lower.is_hello(detail::GroupKey(ListeningRank::spec(1), members).hello()));
    int detail::Member::*const ports[]{&detail::Member::port, &detail::Member::alarm_port, &detail::Member::p2p_port};
    for (const std::size_t rank : {0, 1}) {
        for (const auto port : ports) {
            std::vector<detail::Member> forged = members;
            forged[rank].*port += 1;
            CHECK_FALSE(lower.is_hello(detail::GroupKey(ListeningRank::spec(1), forged).hello()));
        }
        std::vector<detail::Member> forged = members;
        forged[rank].address = "127.0.0.3";
        CHECK_FALSE(lower.is_hello(detail::GroupKey(ListeningRank::spec(1), forged).hello()));
    }
}

TEST_CASE("a peer that is right in all but one field is a stranger", "[native][unit]") {
    WaitingRank waiting;
    const std::vector<detail::Member> members(2, waiting.member);
    detail::GroupSpec spec;
    spec.name = "world";
    spec.rank = 1;
    std::vector<detail::Hello> hellos(5, detail::GroupKey(spec, members).hello());
    hellos[0].generation += 1;
    hellos[1].group += 1;
    hellos[2].mac[31] ^= 1;
    hellos[3].version += 1;
    hellos[4].nonce[0] ^= 1;
    hellos.push_back(detail::GroupKey(spec, members).hello(7));  // there is no such socket
    spec.generation = 1;                                         // a worker of the next generation
    hellos.push_back(detail::GroupKey(spec, members).hello());
    spec.generation = 0;
    spec.secret = "another";  // only one of them has a secret
    hellos.push_back(detail::GroupKey(spec, members).hello());
    std::vector<UniqueFd> strangers;
    for (const detail::Hello& hello : hellos)
        strangers.push_back(waiting.stranger(std::as_bytes(std::span(&hello, 1))));
    auto second = waiting.start(1);
    CHECK(waiting.first.get() == 3);
    CHECK(second.get() == 3);
    for (const UniqueFd& stranger : strangers) CHECK(was_closed(stranger));
}

TEST_CASE("a rank whose last message is wrong, or was sent before, is a stranger", "[native][unit]") {
    const ListeningRank lower;
    const detail::GroupSpec spec = lower.spec(1);
    const detail::GroupKey key(spec, lower.members);
    const detail::Hello hello = key.hello();
    auto accepted = std::async(std::launch::async, [&] {
        const detail::GroupSpec own = lower.spec(0);
        const detail::HandshakeSpec place{.spec = own, .members = lower.members, .deadline = soon()};
        return detail::meet_over_tcp(place, lower.listener.get(), {1}, &detail::Member::port).at(1).size();
    });
    const auto connect = [&](detail::Hello& answer) {
        auto socket = detail::connect_tcp(lower.members[0].address, lower.members[0].port, soon());
        UniqueFd none;
        REQUIRE(socket.has_value());
        REQUIRE(detail::send_all(socket->get(), std::as_bytes(std::span(&hello, 1)), -1, soon()).has_value());
        const auto bytes = std::as_writable_bytes(std::span(&answer, 1));
        REQUIRE(detail::receive_all(socket->get(), bytes, none, soon()).has_value());
        return std::move(*socket);
    };
    detail::Hello old_answer;
    detail::Hello new_answer;
    const UniqueFd never_finished = connect(old_answer);
    REQUIRE(key.is_answer(hello, old_answer));
    const UniqueFd replayed = connect(new_answer);
    CHECK(new_answer.nonce != old_answer.nonce);
    const ddprun::Mac old_proof = key.proof(hello, old_answer);
    (void)detail::send_all(replayed.get(), std::as_bytes(std::span(old_proof)), -1, soon());
    const UniqueFd reflected = connect(new_answer);
    (void)detail::send_all(reflected.get(), std::as_bytes(std::span(new_answer.mac)), -1, soon());
    CHECK(was_closed(replayed));
    CHECK(was_closed(reflected));
    const detail::HandshakeSpec place{.spec = spec, .members = lower.members, .deadline = soon()};
    CHECK(detail::meet_over_tcp(place, -1, {0}, &detail::Member::port).at(0).size() == 1);
    CHECK(accepted.get() == 1);
    CHECK(was_closed(never_finished));
}

TEST_CASE("a process that took the port of a rank is not taken for it", "[native][unit]") {
    const ListeningRank lower;
    const detail::GroupSpec spec = lower.spec(1);
    detail::GroupSpec of_other = spec;
    of_other.rank = 0;
    of_other.secret = "another";
    const bool reflects = GENERATE(true, false);
    auto impostor = std::async(std::launch::async, [&] {
        if (!detail::wait_for(lower.listener.get(), POLLIN, soon())) return false;
        const UniqueFd socket(::accept4(lower.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        detail::Hello hello;
        UniqueFd none;
        const auto received =
            detail::receive_all(socket.get(), std::as_writable_bytes(std::span(&hello, 1)), none, soon());
        const detail::Hello answer = reflects ? hello : detail::GroupKey(of_other, lower.members).answer(hello);
        (void)detail::send_all(socket.get(), std::as_bytes(std::span(&answer, 1)), -1, soon());
        return received.has_value() && was_closed(socket);
    });
    const detail::HandshakeSpec place{.spec = spec, .members = lower.members, .deadline = soon()};
    CHECK_THROWS_WITH(detail::meet_over_tcp(place, lower.listener.get(), {0}, &detail::Member::port),
                      Catch::Contains("another process answered: it belongs to another group, generation or job"));
    CHECK(impostor.get());
}

TEST_CASE("a lower rank that accepts the connection and is silent is named at the deadline", "[native][unit]") {
    const ListeningRank lower;
    const detail::GroupSpec spec = lower.spec(1);
    const detail::HandshakeSpec place{
        .spec = spec, .members = lower.members, .deadline = ddprun::Clock::now() + std::chrono::milliseconds(300)};
    CHECK_THROWS_WITH(detail::meet_over_tcp(place, lower.listener.get(), {0}, &detail::Member::port),
                      Catch::Contains("while connecting: it did not answer in time"));
}

TEST_CASE("a world whose ranks share a secret works, on one node and on several", "[native][unit]") {
    LocalWorld world{.ranks_per_node = GENERATE(std::vector{3}, std::vector{2, 1})};
    world.secret = "common";
    const auto results = run_ranks(world, [](Context& context) {
        int sum = 1;
        context.world().all_reduce(sum, ReduceOp::Sum).wait();
        const int next = (context.rank() + 1) % 3;
        int got = -1;
        int own = context.rank();
        TransferBatch batch = context.world().batch();
        batch.send(own, next).recv(got, (context.rank() + 2) % 3);
        batch.start().wait();
        return 10 * sum + got;
    });
    CHECK(results == std::vector<int>{32, 30, 31});
}

TEST_CASE("a rank without the secret that the others have does not begin", "[native][unit]") {
    const auto store = store_of_two_who_met();
    detail::Member other;
    other.node = "another/0";
    other.hostname = "far";
    other.pid = 71;
    other.token = "token";
    other.local_name = "name";
    other.address = "127.0.0.1";
    store->set("ddp/0/of-2/world/member/1", detail::encode(other));
    LocalWorld world{.ranks_per_node = {1, 1}};
    world.secret = "mine";
    CHECK_THROWS_WITH(Context(world.environment(0), store, world.options()),
                      Catch::Contains(") has the secret of this job's workers from ddprun, rank 1 (host far, pid 71) "
                                      "does not. ") &&
                          Catch::Contains("one version of ddprun on all nodes") &&
                          Catch::Contains("closes descriptors or removes DDPRUN_SECRET_FD"));
}

TEST_CASE("ranks with different settings do not begin, and the error shows both", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {1, 1}};
    const auto store = store_of_two_who_met();
    detail::Member other;  // a record of rank 1, which waits for nothing
    other.node = "another/0";
    other.hostname = "far";
    other.pid = 71;
    other.token = "token";
    other.local_name = "name";
    other.address = "127.0.0.1";
    std::string difference;
    SECTION("rules for all-reduce") {
        other.all_reduce = "rd:0-max";
        difference = "uses DDPRUN_ALLREDUCE usual, rank 1 (host far, pid 71) uses rd:0-max";
    }
    SECTION("sockets") {
        other.sockets_per_peer = "2";
        difference = "uses DDPRUN_SOCKETS_PER_PEER usual, rank 1 (host far, pid 71) uses 2";
    }
    store->set("ddp/0/of-2/world/member/1", detail::encode(other));
    try {
        Context context(world.environment(0), store, world.options());
        FAIL("it began");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Mismatch);
        CHECK(error.culprits().empty());
        CHECK_THAT(error.what(), Catch::Contains(difference));
    }
}

TEST_CASE("ranks of different versions do not begin, and the error shows both", "[native][unit]") {
    const LocalWorld world{.ranks_per_node = {1, 1}};
    const auto store = store_of_two_who_met();
    store->set("ddp/0/of-2/world/member/1", "ddp/0.0.9/7 far 71 ...");
    try {
        Context context(world.environment(0), store, world.options());
        FAIL("it began");
    } catch (const Error& error) {
        INFO(error.what());
        CHECK(error.code() == ErrorCode::Mismatch);
        CHECK(error.culprits().empty());
        CHECK_THAT(error.what(), Catch::StartsWith("group 'world': rank 0 (host ") &&
                                     Catch::Contains(") is linked with version " +
                                                     detail::version_text(detail::own_version()) + " of ddp::ddp, ") &&
                                     Catch::Contains("rank 1 (host far, pid 71) with 0.0.9 (protocol 7). Rebuild"));
    }
}

TEST_CASE("a member that has joined but does not connect is named", "[native][unit]") {
    WaitingRank waiting;
    const LocalWorld hasty{.ranks_per_node = {1, 1}, .init_timeout = std::chrono::milliseconds(500)};
    // Rank 1 publishes a record and does nothing more.
    detail::Member absent = waiting.member;
    absent.node = "another/0";
    auto first = std::async(std::launch::async, [&]() -> std::string {
        const auto store = store_of_two_who_met();
        store->set("ddp/0/of-2/world/member/1", detail::encode(absent));
        try {
            Context context(hasty.environment(0), store, hasty.options());
        } catch (const Error& error) {
            return (error.culprits() == std::vector<int>{1} ? "" : "wrong culprit: ") + std::string(error.what());
        }
        return "connected to no rank";
    });
    CHECK_THAT(first.get(), Catch::Contains("waited until its deadline for rank 1 to connect"));
    auto second = waiting.start(1);  // lets the other world end
    CHECK(waiting.first.get() == 3);
    CHECK(second.get() == 3);
}

TEST_CASE("strangers that connect to the port for sends and receives are closed, and disturb no rank", "[p2p][unit]") {
    const auto results = run_ranks({.ranks_per_node = {1, 1}}, [](Context& context) {
        std::int64_t value = context.rank() + 7;
        std::int64_t got = 0;
        const int other = 1 - context.rank();
        const auto member = detail::decode_member(context.store().get("ddp/0/of-2/world/member/1", seconds(20)));
        const auto stranger = [&](std::span<const std::byte> bytes) {
            auto fd = detail::connect_tcp(member.address, member.p2p_port, soon());
            if (fd) (void)detail::send_all(fd->get(), bytes, -1, soon());
            return fd ? std::move(*fd) : UniqueFd();
        };
        const detail::Hello without_mac;
        std::array<std::byte, 200> garbage{};
        detail::GroupSpec spec;
        spec.name = "world";
        spec.generation = 1;
        const auto first = detail::decode_member(context.store().get("ddp/0/of-2/world/member/0", seconds(20)));
        const auto of_next_generation = detail::GroupKey(spec, {first, member}).hello();
        const UniqueFd silent = stranger({});
        const UniqueFd early = stranger(std::as_bytes(std::span(&of_next_generation, 1)));
        const UniqueFd slow = stranger(std::as_bytes(std::span(&without_mac, 1)).first(10));
        const UniqueFd liar = stranger(std::as_bytes(std::span(&without_mac, 1)));
        const UniqueFd noisy = stranger(garbage);
        TransferBatch batch = context.world().batch();
        batch.send(value, other).recv(got, other);
        batch.start().wait();
        const bool closed = was_closed(liar) && was_closed(noisy) && was_closed(early);
        context.world().barrier().wait();
        return closed ? got : -1;
    });
    CHECK(results == std::vector<std::int64_t>{8, 7});
}

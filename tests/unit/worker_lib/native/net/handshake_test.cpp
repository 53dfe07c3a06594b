// Connections that do not belong to the group.

#include "worker_lib/src/native/net/handshake.hpp"

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
#include "worker_lib/src/native/net/sockets.hpp"

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
            context.world().all_reduce(buffer(sum), ReduceOp::Sum).wait();
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

bool was_closed(const UniqueFd& socket) {
    std::byte byte{};
    UniqueFd none;
    const auto received = detail::receive_all(socket.get(), std::span(&byte, 1), none, soon());
    return !received && received.error().code != ddprun::Errc::kTimeout;
}

/// During its lifetime this process cannot open any descriptor.
class NoDescriptorsLeft {
public:
    NoDescriptorsLeft() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const UniqueFd lowest(::dup(0));
        const rlimit now{.rlim_cur = static_cast<rlim_t>(lowest.get()), .rlim_max = before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
    NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

private:
    rlimit before_{};
};

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
        auto socket =
            detail::accept_unidentified(listener->get(), waiting.size(), most, [&] { waiting.erase(waiting.begin()); });
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
    const UniqueFd without_token = waiting.stranger(std::as_bytes(std::span(&almost, 1)));
    auto second = waiting.start(1);
    CHECK(waiting.first.get() == 3);
    CHECK(second.get() == 3);
    CHECK(was_closed(long_one));
    CHECK(was_closed(without_token));
    CHECK(was_closed(silent));
    CHECK(was_closed(short_one));
}

TEST_CASE("a peer that is right in all but one field is a stranger", "[native][unit]") {
    WaitingRank waiting;
    const std::vector<detail::Member> members(2, waiting.member);
    detail::GroupSpec spec;
    spec.name = "world";
    spec.rank = 1;
    std::vector<detail::Hello> hellos(5, make_hello(spec, members));
    hellos[0].generation += 1;  // a worker of an earlier generation, or of the next one
    hellos[1].group += 1;
    hellos[2].token[31] ^= 1;
    hellos[3].version += 1;
    hellos[4].socket += 7;
    std::vector<UniqueFd> strangers;
    for (const detail::Hello& hello : hellos)
        strangers.push_back(waiting.stranger(std::as_bytes(std::span(&hello, 1))));
    auto second = waiting.start(1);
    CHECK(waiting.first.get() == 3);
    CHECK(second.get() == 3);
    for (const UniqueFd& stranger : strangers) CHECK(was_closed(stranger));
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
        detail::Hello wrong_token;
        wrong_token.rank = 0;
        std::array<std::byte, 200> garbage{};
        detail::GroupSpec spec;
        spec.name = "world";
        spec.generation = 1;
        const auto first = detail::decode_member(context.store().get("ddp/0/of-2/world/member/0", seconds(20)));
        const auto of_next_generation = make_hello(spec, {first, member});
        const UniqueFd silent = stranger({});
        const UniqueFd early = stranger(std::as_bytes(std::span(&of_next_generation, 1)));
        const UniqueFd slow = stranger(std::as_bytes(std::span(&wrong_token, 1)).first(10));
        const UniqueFd liar = stranger(std::as_bytes(std::span(&wrong_token, 1)));
        const UniqueFd noisy = stranger(garbage);
        Batch batch = context.world().batch();
        batch.send(buffer(value), other).recv(buffer(got), other);
        batch.start().wait();
        const bool closed = was_closed(liar) && was_closed(noisy) && was_closed(early);
        context.world().barrier().wait();
        return closed ? got : -1;
    });
    CHECK(results == std::vector<std::int64_t>{8, 7});
}

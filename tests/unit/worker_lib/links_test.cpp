// An exchange of many messages, none of which ever has to wait: it looks after its node all the same. And messages that
// are spread over several sockets.

#include "worker_lib/src/native/links.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/sockets.hpp"

using namespace ddp;
using namespace ddp::detail;

namespace {

/// Empty messages to one peer, as many as fit into a socket that nobody reads; and one that never comes.
class Messages final : public detail::Stream {
public:
    Messages(std::chrono::milliseconds each, Turn in) : each_(each), in_(in) {}
    NextOut next_out(std::size_t /*peer*/) override {
        return {sent_ < kMessages ? Turn::kNow : Turn::kNever, static_cast<std::uint32_t>(sent_), {}};
    }
    NextIn next_in(std::size_t /*peer*/) override { return {in_, 0, {}}; }
    void sent(std::size_t /*peer*/) override {
        ++sent_;
        std::this_thread::sleep_for(each_);
    }
    void received(std::size_t /*peer*/) override {}
    [[nodiscard]] int count() const { return sent_; }

    static constexpr int kMessages = 100;

private:
    const std::chrono::milliseconds each_;
    const Turn in_;
    int sent_ = 0;
};

/// What the first peer has to send has come, what the second hands on has not.
class HandedOn final : public detail::Stream {
public:
    NextOut next_out(std::size_t /*peer*/) override { return {}; }
    NextIn next_in(std::size_t peer) override {
        begun = true;
        return {peer == 0 ? Turn::kNever : Turn::kNow, 0, {}};
    }
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t /*peer*/) override {}
    [[nodiscard]] bool in_depends(std::size_t peer) const override { return peer == 1; }

    std::atomic<bool> begun{false};
};

using Ends = std::array<ddprun::UniqueFd, 2>;

Ends pair_of_ends() {
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    return {ddprun::UniqueFd(ends[0]), ddprun::UniqueFd(ends[1])};
}

/// A rank alone on its node, with connections to others.
struct Rank {
    explicit Rank(int others = 1) {
        std::map<int, Link> map;
        for (int other = 1; other <= others; ++other) {
            auto ends = pair_of_ends();
            peers.push_back(std::move(ends[1]));
            Link link;
            link.socket = std::move(ends[0]);
            link.name = "rank " + std::to_string(other);
            map.emplace(other, std::move(link));
        }
        links.emplace("world", 0, std::move(map), node);
    }
    Rank(int rank, Link link) : node("world", alone(rank), 0) {
        std::map<int, Link> map;
        link.name = "its peer";
        map.emplace(1 - rank, std::move(link));
        links.emplace("world", 0, std::move(map), node);
    }
    static std::vector<LocalRank> alone(int rank) {
        std::vector<LocalRank> ranks(1);
        ranks[0].rank = rank;
        ranks[0].segment = Segment::create();
        return ranks;
    }
    void exchange(detail::Stream& messages, ddprun::TimePoint deadline) {
        Operation operation;
        operation.deadline = deadline;
        node.begin(operation);
        std::vector<int> ranks(peers.size());
        std::iota(ranks.begin(), ranks.end(), 1);
        links->exchange(operation, ranks, messages);
    }

    std::vector<ddprun::UniqueFd> peers;
    Node node{"world", alone(0), 0};
    std::optional<Links> links;
};

/// Ranks 0 and 1, with several sockets between them.
struct Two {
    explicit Two(std::size_t sockets) {
        std::array<Link, 2> ends;
        for (std::size_t i = 0; i < sockets; ++i) {
            auto pair = pair_of_ends();
            for (std::size_t rank = 0; rank < 2; ++rank) {
                numbers[rank].push_back(pair[rank].get());
                (i == 0 ? ends[rank].socket : ends[rank].more.emplace_back()) = std::move(pair[rank]);
            }
        }
        for (int rank = 0; rank < 2; ++rank) {
            ranks[static_cast<std::size_t>(rank)].emplace(rank, std::move(ends[static_cast<std::size_t>(rank)]));
        }
    }

    /// Rank `self` sends `out` and receives `bytes` bytes.
    std::vector<std::byte> exchange(std::size_t self, std::span<const std::byte> out, std::size_t bytes) {
        std::vector<std::byte> in(bytes);
        Operation operation;
        operation.deadline = ddprun::Clock::now() + std::chrono::seconds(20);
        ranks[self]->node.begin(operation);
        const int peer = 1 - static_cast<int>(self);
        const OutMessage to{peer, out};
        const InMessage from{peer, in};
        ranks[self]->links->exchange(operation, 0, std::span(&to, 1), std::span(&from, 1));
        return in;
    }

    std::array<std::vector<int>, 2> numbers;  ///< descriptors by rank
    std::array<std::optional<Rank>, 2> ranks;
};

std::vector<std::byte> some_bytes(std::size_t count, unsigned first) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + i + (i >> 16) * 7);
    return bytes;
}

constexpr std::size_t kStripe = Stripes::kBytes;

}  // namespace

TEST_CASE("a rank whose messages flow says to its neighbours that it listens", "[native][unit]") {
    Rank rank;
    Messages messages(std::chrono::milliseconds(0), Turn::kNever);
    rank.exchange(messages, ddprun::TimePoint::max());
    CHECK(rank.node.local(0).segment->control().listening.load() >= Messages::kMessages);
}

TEST_CASE("a rank whose messages flow sees that its node has failed, and its deadline", "[native][unit]") {
    Rank rank;
    Messages messages(std::chrono::milliseconds(2), Turn::kNow);
    SECTION("poison") {
        rank.node.poison(Error(ErrorCode::Aborted, "enough", {}));
        CHECK_THROWS_WITH(rank.exchange(messages, ddprun::TimePoint::max()), Catch::Contains("enough"));
    }
    SECTION("deadline") {
        // Long past: it is extended by what peers may take to tell why.
        const auto past = ddprun::Clock::now() - std::chrono::seconds(2);
        CHECK_THROWS_WITH(rank.exchange(messages, past), Catch::Contains("waited until its deadline"));
    }
    CHECK(messages.count() < Messages::kMessages);
}

TEST_CASE("who waits for what another hands on gives up last, for that one may know who is late", "[native][unit]") {
    Rank rank(2);
    HandedOn messages;
    const auto deadline = ddprun::Clock::now();
    CHECK_THROWS_WITH(rank.exchange(messages, deadline), Catch::Contains("rank 2"));
    CHECK(ddprun::Clock::now() >= deadline + kTelling + 2 * kDoubt);
}

TEST_CASE("who began later is waited for as much longer before it is accused of what it may wait for itself",
          "[native][unit]") {
    constexpr std::chrono::milliseconds kLate{300};
    Rank rank(2);
    HandedOn messages;
    MessageHeader word;
    word.signature = signature_of(Operation{});
    const auto deadline = ddprun::Clock::now();
    auto late = std::async(std::launch::async, [&] {
        while (!messages.begun) std::this_thread::yield();
        std::this_thread::sleep_for(kLate);
        return send_all(rank.peers[1].get(), std::as_bytes(std::span(&word, 1)), -1,
                        deadline + std::chrono::seconds(20))
            .has_value();
    });
    CHECK_THROWS_WITH(rank.exchange(messages, deadline), Catch::Contains("rank 2"));
    CHECK(ddprun::Clock::now() >= deadline + kTelling + 2 * kDoubt + kLate);
    CHECK(late.get());
}

TEST_CASE("every byte of a payload passes over one socket, once and in order", "[native][unit]") {
    const std::size_t sockets = GENERATE(1u, 2u, 3u, 4u, 8u);
    const std::size_t bytes = GENERATE(0u, 1u, kStripe - 1, kStripe, kStripe + 1, 4 * kStripe, 9 * kStripe + 5);
    const std::size_t step = GENERATE(10'000u, kStripe, 100'000u);  // what a socket takes at a time
    CAPTURE(sockets, bytes, step);
    const Stripes stripes{.payload_bytes = bytes, .sockets = sockets};
    std::vector<int> passed(bytes);
    std::size_t sum = 0;
    for (std::size_t socket = 0; socket < sockets; ++socket) {
        sum += stripes.share(socket);
        std::size_t last = 0;
        for (std::size_t done = 0; done < stripes.share(socket);) {
            const Range next = stripes.next(socket, done);
            REQUIRE((!next.empty() && next.begin >= last && next.end <= bytes));
            last = std::min(next.end, next.begin + step);
            for (std::size_t i = next.begin; i < last; ++i) ++passed[i];
            done += last - next.begin;
        }
        CHECK(stripes.next(socket, stripes.share(socket)).empty());
    }
    CHECK(sum == bytes);
    CHECK(std::ranges::count(passed, 1) == std::ssize(passed));
    if (bytes <= kStripe) CHECK(stripes.share(0) == bytes);
}

TEST_CASE("messages in both directions are whole again, however many sockets there are", "[native][unit]") {
    const std::size_t sockets = GENERATE(1u, 2u, 4u, kMostSocketsPerPeer);
    CAPTURE(sockets);
    Two two(sockets);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{8}, kStripe, kStripe + 1, 5 * kStripe + 77, 30 * kStripe}) {
        const auto to_second = some_bytes(count, 1);
        const auto to_first = some_bytes(2 * count + 3, 99);
        auto second = std::async(std::launch::async, [&] { return two.exchange(1, to_first, count); });
        CHECK(two.exchange(0, to_second, to_first.size()) == to_first);
        CHECK(second.get() == to_second);
    }
}

TEST_CASE("what is small passes over the first socket alone", "[native][unit]") {
    Two two(4);
    for (std::size_t i = 1; i < 4; ++i) ::shutdown(two.numbers[0][i], SHUT_RDWR);
    auto second = std::async(std::launch::async, [&] { return two.exchange(1, {}, kStripe); });
    const auto bytes = some_bytes(kStripe, 5);
    CHECK(two.exchange(0, bytes, 0).empty());
    CHECK(second.get() == bytes);
}

TEST_CASE("a socket that breaks, whichever it is, is its peer's loss", "[native][unit]") {
    const std::size_t broken = GENERATE(0u, 1u, 3u);
    CAPTURE(broken);
    Two two(4);
    ::shutdown(two.numbers[1][broken], SHUT_RDWR);
    const auto bytes = some_bytes(40 * kStripe, 5);
    const auto text_of = [&](std::size_t self) -> std::string {
        try {
            (void)two.exchange(self, bytes, bytes.size());
        } catch (const Error& error) {
            const bool right =
                error.code() == ErrorCode::PeerLost && error.culprits() == std::vector<int>{1 - static_cast<int>(self)};
            return (right ? "" : "wrong: ") + std::string(error.what());
        }
        return "nothing was lost";
    };
    auto second = std::async(std::launch::async, [&] { return text_of(1); });
    CHECK_THAT(text_of(0), Catch::StartsWith("group 'world': rank 0 lost its peer"));
    CHECK_THAT(second.get(), Catch::StartsWith("group 'world': rank 1 lost its peer"));
}

TEST_CASE("who waits for the rest of a message on another socket hears the last words on the first", "[native][unit]") {
    Two two(4);
    const int little = static_cast<int>(kStripe);
    for (const int socket : two.numbers[0]) ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    const auto bytes = some_bytes(40 * kStripe, 5);  // more than the sockets hold
    two.ranks[0]->node.poison(Error(ErrorCode::Aborted, "enough", {}));
    try {
        (void)two.exchange(0, bytes, 0);
        FAIL("it sent all");
    } catch (const Error& error) {
        auto second = std::async(std::launch::async, [&]() -> std::string {
            try {
                (void)two.exchange(1, {}, bytes.size());
            } catch (const Error& failure) {
                return failure.what();
            }
            return "all has come";
        });
        // What is left is sent within a moment, if the peer reads: let it begin.
        REQUIRE(wait_for(two.numbers[0][0], POLLOUT, ddprun::Clock::now() + std::chrono::seconds(20)));
        two.ranks[0]->links->finish_messages();
        two.ranks[0]->links->say_goodbye(error);
        CHECK_THAT(second.get(), Catch::Contains("its peer reported") && Catch::Contains("enough"));
    }
}

TEST_CASE("what has been sent arrives, though its sender goes with input that it has not read", "[native][unit]") {
    int port = 0;
    auto listener = listen_tcp("127.0.0.1", port);
    REQUIRE(listener.has_value());
    auto sender = connect_tcp("127.0.0.1", port, ddprun::Clock::now() + std::chrono::seconds(10));
    REQUIRE(sender.has_value());
    REQUIRE(wait_for(listener->get(), POLLIN, ddprun::Clock::now() + std::chrono::seconds(10)));
    const ddprun::UniqueFd receiver(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    REQUIRE(::send(receiver.get(), "unread", 6, 0) == 6);

    // More than the receiver's buffer takes, so that the last of it still waits on the sender's side.
    const std::vector<std::byte> some(1u << 20);
    std::size_t sent = 0;
    for (ssize_t now = 0; (now = ::send(sender->get(), some.data(), some.size(), MSG_NOSIGNAL)) > 0;)
        sent += static_cast<std::size_t>(now);
    ::shutdown(sender->get(), SHUT_WR);
    auto going = std::async(std::launch::async, [&] {
        let_go({sender->get()}, ddprun::Clock::now() + std::chrono::seconds(20));
        sender->reset();
    });
    std::vector<std::byte> in(sent + 1);
    ddprun::UniqueFd none;
    const auto deadline = ddprun::Clock::now() + std::chrono::seconds(20);
    CHECK(receive_all(receiver.get(), std::span(in).first(sent), none, deadline).has_value());
    going.get();
    CHECK(::recv(receiver.get(), in.data(), in.size(), 0) == 0);  // the end, and no error
}

// Messages that are spread over several sockets.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/native/net/links_rank.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

using namespace ddp;
using namespace ddp::detail;
using namespace ddp::testing;

namespace {

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
        operation.seq = 1;
        operation.deadline = ddprun::Clock::now() + std::chrono::seconds(20);
        ranks[self]->node.progress.begin(operation);
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

TEST_CASE("messages in both directions arrive whole, for any number of sockets", "[native][unit]") {
    const std::size_t sockets = GENERATE(1u, 2u, 4u, kMaxSocketsPerPeer);
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

TEST_CASE("a small message passes over the first socket alone", "[native][unit]") {
    Two two(4);
    for (std::size_t i = 1; i < 4; ++i) ::shutdown(two.numbers[0][i], SHUT_RDWR);
    auto second = std::async(std::launch::async, [&] { return two.exchange(1, {}, kStripe); });
    const auto bytes = some_bytes(kStripe, 5);
    CHECK(two.exchange(0, bytes, 0).empty());
    CHECK(second.get() == bytes);
}

TEST_CASE("if any socket to a peer breaks, the peer is lost", "[native][unit]") {
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

TEST_CASE("a rank that waits for the rest of a message on another socket reads the final report on the first",
          "[native][unit]") {
    Two two(4);
    const int little = static_cast<int>(kStripe);
    for (const int socket : two.numbers[0]) ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    const auto bytes = some_bytes(40 * kStripe, 5);  // more than the sockets hold
    two.ranks[0]->node.failure.poison({.code = ErrorCode::Aborted, .cause = "enough"});
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
        two.ranks[0]->links->report_end(detail::failure_of(error));
        CHECK_THAT(second.get(), Catch::Contains("its peer reported") && Catch::Contains("enough"));
    }
}

TEST_CASE("a report of waiting takes no byte of the message behind it, whose stripes go over two sockets",
          "[native][unit]") {
    const std::size_t bytes =
        GENERATE(values<std::size_t>({kStripe, kStripe + 1, 100'000, 2 * kStripe, 3 * kStripe + 5}));
    Two two(2);
    const auto payload = some_bytes(bytes, 3);
    std::array<std::vector<std::byte>, 2> sent;  // over each socket
    const auto add = [&](std::size_t socket, std::span<const std::byte> some) {
        sent[socket].insert(sent[socket].end(), some.begin(), some.end());
    };
    MessageHeader header;
    header.step = MessageHeader::kWaiting;
    add(0, std::as_bytes(std::span(&header, 1)));
    Operation operation;
    operation.seq = 1;
    header.step = 0;
    header.payload_bytes = bytes;
    header.signature = signature_of(operation);
    add(0, std::as_bytes(std::span(&header, 1)));
    for (std::size_t at = 0, stripe = 0; at < bytes; at += kStripe, ++stripe)
        add(stripe % 2, std::span(payload).subspan(at, std::min(kStripe, bytes - at)));
    const Seal good = Seal::kGood;
    add(0, std::as_bytes(std::span(&good, 1)));
    const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
    for (const std::size_t socket : {0u, 1u})
        REQUIRE(send_all(two.numbers[1][socket], sent[socket], -1, soon).has_value());
    CHECK(two.exchange(0, {}, bytes) == payload);
}

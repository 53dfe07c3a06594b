// An exchange of many messages, none of which ever has to wait: it looks after its node all the same.

#include "worker_lib/src/native/links.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/links_rank.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/failure_note.hpp"
#include "worker_lib/src/native/sockets.hpp"

using namespace ddp;
using namespace ddp::detail;
using namespace ddp::testing;

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

/// A message that is to come, and what is heard otherwise just before it is read.
class News final : public detail::Stream {
public:
    explicit News(std::function<void()> hear) : hear_(std::move(hear)) {}
    NextOut next_out(std::size_t /*peer*/) override { return {}; }
    NextIn next_in(std::size_t /*peer*/) override {
        hear_();
        return {Turn::kNow, 0, {}};
    }
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t /*peer*/) override {}

private:
    const std::function<void()> hear_;
};

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

TEST_CASE("a peer whose last words were cut off is told of in those that the node hears otherwise", "[native][unit]") {
    Rank rank;
    MessageHeader words;
    words.step = MessageHeader::kLastWords;
    words.payload_bytes = sizeof(FailureNote);
    const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
    REQUIRE(send_all(rank.peers[0].get(), std::as_bytes(std::span(&words, 1)), -1, soon).has_value());
    ::shutdown(rank.peers[0].get(), SHUT_WR);
    const bool heard = GENERATE(true, false);
    News messages([&] {
        if (heard) rank.node.poison(Error(ErrorCode::PeerLost, "it has left the group", {1}));
    });
    CHECK_THROWS_WITH(rank.exchange(messages, ddprun::TimePoint::max()),
                      Catch::Contains(heard ? "it has left the group" : "has failed and did not say why"));
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
    Operation operation;  // as the rank's
    operation.seq = 1;
    word.signature = signature_of(operation);
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

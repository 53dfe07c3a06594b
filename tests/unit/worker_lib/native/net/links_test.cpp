// Links: exchanges that never have to wait still check their node; late and lost peers; final reports.

#include "worker_lib/src/native/net/links.hpp"

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
#include "tests/unit/worker_lib/native/net/links_rank.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/protocol/deadlines.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"

using namespace ddp;
using namespace ddp::detail;
using namespace ddp::testing;

namespace {

/// Empty messages to one peer, as many as fit into a socket that is not read; and one that never arrives.
class Messages final : public detail::MessageStream {
public:
    Messages(std::chrono::milliseconds each, Readiness in) : each_(each), in_(in) {}
    NextOut next_out(std::size_t /*peer*/) override {
        return {sent_ < kMessages ? Readiness::kNow : Readiness::kNever, static_cast<std::uint32_t>(sent_), {}};
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
    const Readiness in_;
    int sent_ = 0;
};

/// The message of the first peer has arrived, the one that the second hands on has not.
class HandedOn final : public detail::MessageStream {
public:
    NextOut next_out(std::size_t /*peer*/) override { return {}; }
    NextIn next_in(std::size_t peer) override {
        begun = true;
        return {peer == 0 ? Readiness::kNever : Readiness::kNow, 0, {}};
    }
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t /*peer*/) override {}
    [[nodiscard]] bool in_depends(std::size_t peer) const override { return peer == 1; }

    std::atomic<bool> begun{false};
};

/// One expected message of the first peer.
class OneMessage final : public detail::MessageStream {
public:
    explicit OneMessage(std::size_t bytes) : bytes_(bytes) {}
    NextOut next_out(std::size_t /*peer*/) override { return {}; }
    NextIn next_in(std::size_t peer) override {
        return {peer > 0 || whole_ ? Readiness::kNever : Readiness::kNow, 0, bytes_};
    }
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t /*peer*/) override { whole_ = true; }
    [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    std::vector<std::byte> bytes_;
    bool whole_ = false;
};

/// An empty message to the first peer, and one expected of the second.
class OneEach final : public detail::MessageStream {
public:
    NextOut next_out(std::size_t peer) override {
        return {peer == 0 && !sent_ ? Readiness::kNow : Readiness::kNever, 0, {}};
    }
    NextIn next_in(std::size_t peer) override { return {peer == 1 ? Readiness::kNow : Readiness::kNever, 0, {}}; }
    void sent(std::size_t /*peer*/) override { sent_ = true; }
    void received(std::size_t /*peer*/) override {}

private:
    bool sent_ = false;
};

/// An expected message, and what the node hears just before it is read.
class News final : public detail::MessageStream {
public:
    explicit News(std::function<void()> hear) : hear_(std::move(hear)) {}
    NextOut next_out(std::size_t /*peer*/) override { return {}; }
    NextIn next_in(std::size_t /*peer*/) override {
        hear_();
        return {Readiness::kNow, 0, {}};
    }
    void sent(std::size_t /*peer*/) override {}
    void received(std::size_t /*peer*/) override {}

private:
    const std::function<void()> hear_;
};

}  // namespace

TEST_CASE("a rank whose messages flow signals its neighbours that it listens", "[native][unit]") {
    Rank rank;
    Messages messages(std::chrono::milliseconds(0), Readiness::kNever);
    rank.exchange(messages, ddprun::TimePoint::max());
    CHECK(rank.node.ranks.local(0).segment->control().listening.load() >= Messages::kMessages);
}

TEST_CASE("a rank whose messages flow sees that its node has failed, and its deadline", "[native][unit]") {
    Rank rank;
    Messages messages(std::chrono::milliseconds(2), Readiness::kNow);
    SECTION("poison") {
        rank.node.failure.poison({.code = ErrorCode::Aborted, .cause = "enough"});
        CHECK_THROWS_WITH(rank.exchange(messages, ddprun::TimePoint::max()), Catch::Contains("enough"));
    }
    SECTION("deadline") {
        // Long past: it is extended by the time that peers may need to report why.
        const auto past = ddprun::Clock::now() - std::chrono::seconds(2);
        CHECK_THROWS_WITH(
            rank.exchange(messages, past),
            Catch::Contains("waited until its deadline for rank 1 in ") &&
                Catch::EndsWith("; look at that rank first: it is late, or it waits for another rank itself"));
    }
    CHECK(messages.count() < Messages::kMessages);
}

TEST_CASE("if a peer's final report was cut off, the failure that the node hears otherwise is reported",
          "[native][unit]") {
    Rank rank;
    MessageHeader words;
    words.step = MessageHeader::kFinalReport;
    words.payload_bytes = sizeof(FailureNote);
    const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
    REQUIRE(send_all(rank.peers[0].get(), std::as_bytes(std::span(&words, 1)), -1, soon).has_value());
    ::shutdown(rank.peers[0].get(), SHUT_WR);
    const bool heard = GENERATE(true, false);
    News messages([&] {
        if (!heard) return;
        rank.node.failure.poison({.code = ErrorCode::PeerLost, .cause = "it has left the group", .culprits = {1}});
    });
    CHECK_THROWS_WITH(rank.exchange(messages, ddprun::TimePoint::max()),
                      Catch::Contains(heard ? "it has left the group" : "has failed without reporting the reason"));
}

TEST_CASE("a rank whose peer hands messages on gives up last, because the peer may know the late rank",
          "[native][unit]") {
    Rank rank(2);
    HandedOn messages;
    const auto deadline = ddprun::Clock::now();
    CHECK_THROWS_WITH(rank.exchange(messages, deadline), Catch::Contains("rank 2"));
    CHECK(ddprun::Clock::now() >= deadline + kReporting + 2 * kDoubt);
}

TEST_CASE("a peer that began later gets as much longer before it is accused of what it may wait for itself",
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
    CHECK(ddprun::Clock::now() >= deadline + kReporting + 2 * kDoubt + kLate);
    CHECK(late.get());
}

TEST_CASE("a rank past its deadline reports to its peers that it waits itself", "[native][unit]") {
    Rank rank(2);
    OneMessage message(8);
    CHECK_THROWS_WITH(rank.exchange(message, ddprun::Clock::now()), Catch::Contains("rank 1"));
    for (const ddprun::UniqueFd& peer : rank.peers) {
        MessageHeader report;
        ddprun::UniqueFd none;
        const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
        REQUIRE(receive_all(peer.get(), std::as_writable_bytes(std::span(&report, 1)), none, soon).has_value());
        CHECK(report.is_report_of_waiting());
        CHECK(report.signature.identity.seq == 1);
    }
}

TEST_CASE("a peer that has still to read an older message gets the report of waiting after it", "[native][unit]") {
    constexpr int kTries =
        5;  // a machine that is too busy for the time between report and end shows nothing: once more
    bool told = false;
    for (int tries = 0; tries < kTries && !told; ++tries) {
        Rank rank(2);
        MessageHeader header;
        header.step = MessageHeader::kWaiting;
        const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
        const auto receive = [&](const ddprun::UniqueFd& peer) {
            ddprun::UniqueFd none;
            return receive_all(peer.get(), std::as_writable_bytes(std::span(&header, 1)), none, soon).has_value();
        };
        REQUIRE(send_all(rank.peers[1].get(), std::as_bytes(std::span(&header, 1)), -1, soon).has_value());
        auto peers = std::async(std::launch::async, [&] {
            const bool past_deadline = receive(rank.peers[1]) && header.is_report_of_waiting();
            const bool older = receive(rank.peers[0]) && !header.is_report_of_waiting();
            return past_deadline && older && receive(rank.peers[0]) && header.is_report_of_waiting();
        });
        OneEach messages;
        CHECK_THROWS_WITH(rank.exchange(messages, ddprun::Clock::now()), Catch::Contains("rank 2"));
        rank.links.reset();  // or a peer that got no report would wait for it
        told = peers.get();
    }
    CHECK(told);
}

TEST_CASE("a peer that reports that it waits is accused last", "[native][unit]") {
    Rank rank;
    MessageHeader report;
    report.step = MessageHeader::kWaiting;
    const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
    REQUIRE(send_all(rank.peers[0].get(), std::as_bytes(std::span(&report, 1)), -1, soon).has_value());
    OneMessage message(8);
    const auto deadline = ddprun::Clock::now();
    CHECK_THROWS_WITH(rank.exchange(message, deadline), Catch::Contains("rank 1"));
    CHECK(ddprun::Clock::now() >= deadline + kReporting + 3 * kDoubt);
}

TEST_CASE("a report of waiting takes no byte of the message behind it", "[native][unit]") {
    const auto bytes = GENERATE(values<std::size_t>({0, 7, 80, 100, 16'384, 16'385, 20'000, 100'000}));
    const int reports = GENERATE(1, 2);
    Rank rank;
    std::vector<std::byte> sent;
    const auto add = [&sent](const auto& value) {
        const auto raw = std::as_bytes(std::span(&value, 1));
        sent.insert(sent.end(), raw.begin(), raw.end());
    };
    MessageHeader header;
    header.step = MessageHeader::kWaiting;
    for (int i = 0; i < reports; ++i) add(header);
    Operation operation;
    operation.seq = 1;
    header.step = 0;
    header.payload_bytes = bytes;
    header.signature = signature_of(operation);
    add(header);
    std::vector<std::byte> payload(bytes);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i % 251);
    sent.insert(sent.end(), payload.begin(), payload.end());
    if (seal_bytes(bytes) > 0) add(Seal::kGood);
    const auto soon = ddprun::Clock::now() + std::chrono::seconds(20);
    auto peer =
        std::async(std::launch::async, [&] { return send_all(rank.peers[0].get(), sent, -1, soon).has_value(); });
    OneMessage message(bytes);
    rank.exchange(message, soon);
    CHECK(peer.get());
    CHECK(message.bytes() == payload);
}

TEST_CASE("a final report behind a report of waiting is the reason of a broken connection", "[native][unit]") {
    Rank rank;
    auto ends = pair_of_ends();
    Link link;
    link.socket = std::move(ends[0]);
    link.name = "rank 1";
    Operation operation;
    operation.seq = 2;
    operation.deadline = ddprun::Clock::now() + std::chrono::seconds(20);
    rank.node.progress.begin(operation);
    Flow flow;
    flow.rank = 1;
    flow.link = &link;
    std::vector<std::byte> buffer(100'000);
    flow.receive(0, buffer);
    MessageHeader header;
    header.step = MessageHeader::kWaiting;
    REQUIRE(send_all(ends[1].get(), std::as_bytes(std::span(&header, 1)), -1, operation.deadline).has_value());
    header.step = MessageHeader::kFinalReport;
    header.payload_bytes = sizeof(FailureNote);
    REQUIRE(send_all(ends[1].get(), std::as_bytes(std::span(&header, 1)), -1, operation.deadline).has_value());
    const FailureNote note = make_note({.code = ErrorCode::Timeout, .cause = "rank 2 is late", .culprits = {1}});
    REQUIRE(send_all(ends[1].get(), std::as_bytes(std::span(&note, 1)), -1, operation.deadline).has_value());
    ends[1].reset();
    const ExchangeErrors errors("world", 0, rank.node);
    CHECK_THROWS_WITH(errors.peer_lost(operation, flow, "it closed the connection"), Catch::Contains("rank 2 is late"));
}

TEST_CASE("sent data arrives even if its sender closes with unread input", "[native][unit]") {
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
        drain({sender->get()}, ddprun::Clock::now() + std::chrono::seconds(20));
        sender->reset();
    });
    std::vector<std::byte> in(sent + 1);
    ddprun::UniqueFd none;
    const auto deadline = ddprun::Clock::now() + std::chrono::seconds(20);
    CHECK(receive_all(receiver.get(), std::span(in).first(sent), none, deadline).has_value());
    going.get();
    CHECK(::recv(receiver.get(), in.data(), in.size(), 0) == 0);  // the end, and no error
}

// An exchange of many messages, none of which ever has to wait: it looks after its node all the same.

#include "worker_lib/src/native/links.hpp"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "tests/catch.hpp"

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

/// A rank alone on its node, with a connection to rank 1.
struct Rank {
    Rank() {
        std::array<int, 2> ends{-1, -1};
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
        peer.reset(ends[1]);
        std::map<int, Link> map;
        map[1].socket.reset(ends[0]);
        links.emplace("world", 0, 0, std::move(map), node);
    }
    static std::vector<LocalRank> alone() {
        std::vector<LocalRank> ranks(1);
        ranks[0].segment = Segment::create();
        return ranks;
    }
    void exchange(Messages& messages, ddprun::TimePoint deadline) {
        Operation operation;
        operation.deadline = deadline;
        node.begin(operation);
        const std::array<int, 1> peers{1};
        links->exchange(operation, peers, messages);
    }

    ddprun::UniqueFd peer;
    Node node{"world", alone(), 0};
    std::optional<Links> links;
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

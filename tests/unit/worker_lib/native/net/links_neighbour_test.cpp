// Messages that are sent from a neighbour's memory, which may change as soon as that rank gives up: then they must not
// count as complete.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/native/net/links_rank.hpp"
#include "tests/unit/worker_lib/support/node_ranks.hpp"
#include "worker_lib/src/native/collectives/collectives.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

using namespace ddp;
using namespace ddp::detail;
using namespace ddp::testing;

namespace {

/// A link of so many sockets.
std::array<Link, 2> pair_of_links(std::size_t sockets) {
    std::array<Link, 2> links;
    for (std::size_t i = 0; i < sockets; ++i) {
        auto ends = pair_of_ends();
        for (std::size_t end = 0; end < 2; ++end)
            (i == 0 ? links[end].socket : links[end].more.emplace_back()) = std::move(ends[end]);
    }
    return links;
}

constexpr int kReceiver = 2;

/// A rank with a neighbour, from whose memory it sends to a rank of another node.
struct Sender {
    explicit Sender(Link link) {
        std::map<int, Link> map;
        link.name = "the receiver";
        map.emplace(kReceiver, std::move(link));
        links.emplace("world", 0, std::move(map), ranks[0]);
        for (int rank : {0, 1}) ranks[rank].progress.begin(one);
    }
    /// Its error, which it has reported by then.
    Error send(std::span<const std::byte> theirs) {
        const OutMessage message{kReceiver, theirs, false, Owner::kNeighbour};
        const Error error = failure_of([&] { links->exchange(one, 0, std::span(&message, 1), {}); });
        if (error.code() == kNone.code()) return error;
        links->finish_messages();
        links->report_end(detail::failure_of(error));
        return error;
    }
    void neighbour_gives_up(bool leaves) {
        if (!leaves) return ranks[1].failure.poison(kEnough);
        ranks[1].failure.stop(kEnough);
        ranks[1].progress.leave(Departure::kLeft);
    }

    Ranks ranks{2};
    Operation one = operation(1);
    std::optional<Links> links;
};

/// A collective with all buffers in arenas, from which the receiver gets something.
struct Kind {
    OpKind kind = OpKind::kBroadcast;
    const char* rules = nullptr;
    std::size_t gives = 1;  ///< kCount elements
    std::size_t gets = 1;
    int root = 0;
};
constexpr std::size_t kCount = 1000;

Error receive(Rank& rank, const Operation& one, std::span<std::byte> bytes) {
    rank.node.progress.begin(one);
    const InMessage message{0, bytes};
    return failure_of([&] { rank.links->exchange(one, 0, {}, std::span(&message, 1)); });
}

constexpr std::byte kGood{1};
constexpr std::byte kBad{2};
constexpr std::size_t kLarge = 4u << 20;  // more than the sockets hold

}  // namespace

TEST_CASE("data of a neighbour arrives whole, small or large", "[native][unit]") {
    const std::size_t sockets = GENERATE(1u, 4u);
    auto ends = pair_of_links(sockets);
    Sender sender(std::move(ends[0]));
    Rank receiver(1, std::move(ends[1]));
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, kMaxUnsealed, kMaxUnsealed + 1, Stripes::kBytes, kLarge + 77}) {
        CAPTURE(count);
        const std::vector<std::byte> theirs(count, kGood);
        std::vector<std::byte> come(count);
        auto sending = std::async(std::launch::async, [&] { return sender.send(theirs); });
        CHECK(receive(receiver, sender.one, come).what() == std::string(kNone.what()));
        CHECK(sending.get().what() == std::string(kNone.what()));
        CHECK(come == theirs);
    }
}

TEST_CASE("a message whose owner gives up in the middle of it ends with an error, however much has arrived",
          "[native][unit]") {
    const std::size_t sockets = GENERATE(1u, 4u);
    const bool leaves = GENERATE(false, true);
    CAPTURE(sockets, leaves);
    auto ends = pair_of_links(sockets);
    const int first = ends[1].fd(0);
    Sender sender(std::move(ends[0]));
    Rank receiver(1, std::move(ends[1]));
    std::vector<std::byte> theirs(kLarge, kGood);
    std::vector<std::byte> come(kLarge);
    auto sending = std::async(std::launch::async, [&] { return sender.send(theirs); });
    REQUIRE(wait_for(first, POLLIN, ddprun::Clock::now() + std::chrono::seconds(20)));
    sender.neighbour_gives_up(leaves);
#if !defined(__SANITIZE_THREAD__)  // which would call it a race
    std::ranges::fill(theirs, kBad);
#endif
    const Error error = receive(receiver, sender.one, come);
    CHECK(error.code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    CHECK_THAT(error.what(), Catch::Contains(leaves ? "has left the group" : "reported: enough"));
    CHECK(sending.get().code() == error.code());
}

TEST_CASE("no data of a neighbour that has given up is sent", "[native][unit]") {
    const std::size_t count = GENERATE(1u, kMaxUnsealed, kLarge);
    const bool leaves = GENERATE(false, true);
    auto ends = pair_of_links(1);
    Sender sender(std::move(ends[0]));
    sender.neighbour_gives_up(leaves);
    const std::vector<std::byte> theirs(count, kBad);
    CHECK(sender.send(theirs).code() == (leaves ? ErrorCode::PeerLost : ErrorCode::Aborted));
    Rank receiver(1, std::move(ends[1]));
    std::vector<std::byte> come(count, kGood);
    const Error error = receive(receiver, sender.one, come);
    CHECK_THAT(error.what(), Catch::Contains(leaves ? "has left the group" : "reported: enough"));
    CHECK(std::ranges::count(come, kBad) == 0);
}

TEST_CASE("no operation sends data of a neighbour that gives up after the ranks have met", "[native][unit]") {
    const auto kind = GENERATE(values<Kind>({
        {.kind = OpKind::kBroadcast, .root = 1},
        {.kind = OpKind::kScatter, .gives = 3, .root = 1},
        {.kind = OpKind::kGather, .gets = 3, .root = kReceiver},
        {.kind = OpKind::kAllGather, .gets = 3},
        {.kind = OpKind::kAllToAll, .gives = 3, .gets = 3},
        {.kind = OpKind::kReduceScatter, .gives = 3},
        {.kind = OpKind::kAllReduce, .rules = "rd:0-max"},
        {.kind = OpKind::kAllReduce, .rules = "direct:0-max"},
        {.kind = OpKind::kAllReduce, .rules = "scatter:0-max"},
    }));
    CAPTURE(static_cast<int>(kind.kind), kind.rules);
    auto ends = pair_of_links(1);
    Sender sender(std::move(ends[0]));
    auto& ranks = sender.ranks;
    auto* const heap = reinterpret_cast<float*>(ranks[0].ranks.local(0).segment->heap());
    Operation one = operation(1);
    one.kind = kind.kind;
    one.root = kind.root;
    const bool gives = kind.kind != OpKind::kScatter || kind.root == 0;
    const bool gets = kind.kind != OpKind::kGather;
    if (kind.kind != OpKind::kBroadcast)
        one.output = Buffer{heap + kind.gives * kCount, kind.gets * kCount, DType::F32};
    one.buffer = {heap, kind.gives * kCount, DType::F32};
    const auto own = [&](const Buffer& buffer) {
        return OwnBuffer{.data = static_cast<std::byte*>(buffer.data),
                         .bytes = buffer.bytes(),
                         .heap_offset = static_cast<float*>(buffer.data) == heap ? 0 : kind.gives * kCount * 4};
    };
    OwnBuffers buffers{own(one.buffer), own(one.result())};
    if (!gives) buffers.input = {};
    if (!gets) buffers.output = {};

    Topology topology;
    topology.nodes = {{0, 1}, {kReceiver}};
    topology.carriers = 1;
    OperationScratch scratch;
    const auto rules = AllReduceRules::parse(kind.rules ? std::optional<std::string>(kind.rules) : std::nullopt);
    const std::vector<Member> members;
    const CollectiveContext context{.topology = topology,
                                    .node = ranks[0],
                                    .links = &*sender.links,
                                    .scratch = scratch,
                                    .rules = rules,
                                    .members = members};
    ranks[1].progress.begin(one);
    ranks[1].meetings.open(one, {.input = 0, .output = gets ? kind.gives * kCount * 4 : 0});
    ranks[1].failure.poison(kEnough);
    ranks[0].progress.begin(one);
    CHECK(failure_of([&] { run_collective(context, one, buffers, Step::kNone); }).code() == ErrorCode::Aborted);
    std::array<char, 1> byte{};
    CHECK(::recv(ends[1].fd(0), byte.data(), byte.size(), MSG_DONTWAIT) == -1);
}

#pragma once
// LinksRank: a rank alone on its node, whose connections to others a test controls.

#include <sys/socket.h>

#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/net/links.hpp"

namespace ddp::testing {

using Ends = std::array<ddprun::UniqueFd, 2>;

inline Ends pair_of_ends() {
    std::array<int, 2> ends{-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    return {ddprun::UniqueFd(ends[0]), ddprun::UniqueFd(ends[1])};
}

/// A rank alone on its node, with connections to others.
struct Rank {
    explicit Rank(int others = 1) : node("world", others + 1, alone(0), 0) {
        std::map<int, detail::Link> map;
        for (int other = 1; other <= others; ++other) {
            auto ends = pair_of_ends();
            peers.push_back(std::move(ends[1]));
            detail::Link link;
            link.socket = std::move(ends[0]);
            link.name = "rank " + std::to_string(other);
            map.emplace(other, std::move(link));
        }
        links.emplace("world", 0, std::move(map), node);
    }
    Rank(int rank, detail::Link link) : node("world", 2, alone(rank), 0) {
        std::map<int, detail::Link> map;
        link.name = "its peer";
        map.emplace(1 - rank, std::move(link));
        links.emplace("world", 0, std::move(map), node);
    }
    static std::vector<detail::LocalRank> alone(int rank) {
        std::vector<detail::LocalRank> ranks(1);
        ranks[0].rank = rank;
        ranks[0].segment = detail::Segment::create();
        return ranks;
    }
    void exchange(detail::MessageStream& messages, ddprun::TimePoint deadline) {
        detail::Operation operation;
        operation.seq = 1;
        operation.deadline = deadline;
        operation.timeout = deadline - ddprun::Clock::now();
        node.progress.begin(operation);
        std::vector<int> ranks(peers.size());
        std::iota(ranks.begin(), ranks.end(), 1);
        links->exchange(operation, ranks, messages);
    }

    std::vector<ddprun::UniqueFd> peers;
    detail::Node node;
    std::optional<detail::Links> links;
};

}  // namespace ddp::testing

#pragma once
// The control messages about boards: a worker is stuck, show me the boards, here is one. Plain values; sent only to a
// side that has said (Join::boards, Welcome::boards) that it knows them.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.hpp"
#include "rendezvous/coordinator/messages_board.hpp"

namespace ddprun::coordinator {

/// One worker, as its agent sees it.
struct RankBoard {
    Rank rank{};
    std::string host;
    int pid = 0;
    std::string process;  ///< "running", "stopped", "in the kernel", or how it ended: "exited with code 0"
    bool ended = false;
    std::optional<std::chrono::nanoseconds> ended_ago = {};
    /// What `process` was when its agent told it to end, and so to go on; empty: it has not.
    std::string process_before = {};
    std::optional<std::chrono::nanoseconds> process_before_ago =
        {};                                                    ///< how long ago that was; older agents do not say
    std::optional<std::chrono::nanoseconds> stopped_for = {};  ///< at least, while `process` is "stopped"; the same
    std::int64_t wall_clock_ns = 0;  ///< of that host when the board was read, since 1970; to show, not to compare
    BoardView view;
    friend bool operator==(const RankBoard&, const RankBoard&) = default;
};

/// For so long a failure by a deadline is looked into.
inline constexpr std::chrono::seconds kRecentTimeout{10};

/// Agent → daemon. A worker is in one operation for longer than its node finds normal. Said once
/// per operation, for all that have become too old together by one of them.
struct Stalled {
    Generation generation{};
    Rank rank{};
    std::string group;
    std::uint64_t seq = 0;
    std::uint64_t p2p_seq = 0;  ///< 0: a collective
    std::chrono::milliseconds waited{0};
    bool timed_out = false;  ///< it is over: it has failed by its deadline
    friend bool operator==(const Stalled&, const Stalled&) = default;
};

/// Daemon → agent. Answer with a ShownBoard for each of your workers, or for that one rank.
struct ShowBoards {
    Generation generation{};
    std::uint64_t request = 0;
    std::optional<Rank> rank;
    int operations = 0;  ///< the newest, and those in hand
    friend bool operator==(const ShowBoards&, const ShowBoards&) = default;
};

/// Agent → daemon, and on to whoever asked the daemon.
struct ShownBoard {
    Generation generation{};
    std::uint64_t request = 0;  ///< as it was asked
    bool last = false;          ///< of this node's answer
    RankBoard board;
    friend bool operator==(const ShownBoard&, const ShownBoard&) = default;
};

/// Daemon → agent: something about the whole job that people should read.
struct Notice {
    Generation generation{};
    std::string text;  ///< one line
    friend bool operator==(const Notice&, const Notice&) = default;
};

/// ddpctl → daemon; the first one in place of a Join. The next one only when Inspected has answered.
struct Inspect {
    int protocol = 0;
    std::optional<Rank> rank;  ///< absent: all
    int operations = 0;
    friend bool operator==(const Inspect&, const Inspect&) = default;
};

/// Daemon → ddpctl, behind the ShownBoards that it asked for.
struct Inspected {
    std::string run_id;
    Generation generation{};
    int world_size = 0;               ///< 0: no workers run; `verdict` says why
    std::vector<std::string> silent;  ///< hosts of nodes that did not show theirs
    std::string verdict;              ///< one line
    friend bool operator==(const Inspected&, const Inspected&) = default;
};

inline constexpr int kMaxOperationsShown = 2'000;  // of one rank
/// Of each, when all are asked for: what is in hand and what came before it is what a verdict needs.
inline constexpr int kOperationsShownOfAll = 16;

}  // namespace ddprun::coordinator

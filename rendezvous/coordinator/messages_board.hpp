#pragma once
// What a worker's board says (common/board_layout.hpp), as plain values: read by its agent, sent to the daemon and to
// ddpctl. Times are durations before the moment at which it was read.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"

namespace ddprun::coordinator {

/// Ranks of the job: `first`, `first + stride`, …, `count` of them.
struct RankRun {
    int first = 0;
    int count = 0;
    int stride = 1;
    friend bool operator==(const RankRun&, const RankRun&) = default;
};

struct BoardGroup {
    std::string name;  ///< the same on all its members
    int rank = 0;      ///< of this worker in it
    int size = 1;
    std::vector<RankRun> members;  ///< by rank in the group; empty: too irregular for the board
    bool live = true;
    std::uint64_t queued = 0;  ///< the newest collective that was called, 0: none yet
    std::uint64_t started = 0;
    std::uint64_t done = 0;
    std::optional<std::chrono::nanoseconds> aborted_ago = {};  ///< this rank's program has given the group up …
    std::string abort_reason = {};                             ///< … and why
    std::optional<std::chrono::nanoseconds> left_ago = {};     ///< it has let go of the group, which had not failed …
    bool left_by_exception = false;                            ///< … while an exception passed through it
    friend bool operator==(const BoardGroup&, const BoardGroup&) = default;
};

struct BoardOperation {
    std::uint64_t id = 0;  ///< over all groups of the worker, in the order of the calls
    int group = -1;        ///< index in BoardView::groups; -1: that group is forgotten
    std::uint64_t seq = 0;
    std::uint64_t p2p_seq = 0;  ///< 0: a collective
    std::string op;             ///< "all_reduce", "send", …; "arrived": see is_arrival()
    std::string reduce;         ///< "sum", …; empty: it reduces nothing
    std::string dtype;          ///< empty: it moves nothing
    std::string tag;
    int peer = -1;                  ///< root, or the other side, as rank of the group
    std::int64_t transfer_tag = 0;  ///< of a send or receive: both sides have the same
    std::uint64_t count = 0;        ///< elements, as the ranks compare them
    std::uint64_t input_count = 0;
    std::uint64_t output_count = 0;
    std::uint64_t fingerprint = 0;
    std::chrono::nanoseconds queued_ago{0};
    std::chrono::milliseconds timeout{0};  ///< its deadline is that long after the call; 0: an older agent does not say
    std::optional<std::chrono::nanoseconds> started_ago = {};
    std::optional<std::chrono::nanoseconds> ended_ago = {};
    /// Since when somebody waits for it, or for a collective behind it in its group; empty: it was only posted.
    std::optional<std::chrono::nanoseconds> waited_ago = {};
    bool polled = false;     ///< … by looking now and then: that rank may do something else meanwhile
    bool failed = false;     ///< it ended with an error
    bool timed_out = false;  ///< … which is that a deadline has passed
    bool mismatch = false;   ///< … which is that the ranks called different things
    friend bool operator==(const BoardOperation&, const BoardOperation&) = default;
};

struct BoardView {
    bool written = false;  ///< by a process of this worker; false: it does not use worker_lib
    std::string phase;     ///< as its program calls what it does; may be empty
    std::chrono::nanoseconds phase_for{0};
    std::uint64_t operations_in_all = 0;
    std::vector<BoardGroup> groups;          ///< in the order in which they were made
    int hidden_groups = 0;                   ///< that its board has no place for
    std::vector<BoardOperation> operations;  ///< the newest, and older ones in hand; oldest first
    int more_in_hand = 0;                    ///< that are not among them
    friend bool operator==(const BoardView&, const BoardView&) = default;
};

/// "#183 all_reduce sum f32[6572160] 'bucket 3'", as worker_lib's errors name an operation.
[[nodiscard]] std::string describe(const BoardOperation& operation);

/// The same with its group, as far as that is known: "#183 all_reduce sum f32[4] of group 'world'".
[[nodiscard]] std::string describe(const BoardView& view, const BoardOperation& operation);

/// What the worker does, or did last: "in #183 all_reduce sum f32[4] 'bucket 3' of group 'world' for 0.3 s; in
/// phase 'eval'"; in what it waits for, for the rest is under way by itself. Empty when it has not used the library.
[[nodiscard]] std::string describe_activity(const BoardView& view);

/// Whether it is no operation of that worker, but a message from its `peer` that has come while it waited for another
/// one, and that no receive asks for; until `ended_ago`. Its numbers are those that the sender gave it.
[[nodiscard]] inline bool is_arrival(const BoardOperation& operation) { return operation.op == "arrived"; }

/// It waits for the ranks of a new world to appear (worker_lib's InitWait).
[[nodiscard]] inline bool is_init(const BoardOperation& operation) { return operation.op == "init_from_env"; }

/// The operation that the worker is in, if any: begun, not ended, and waited for. Of several the oldest collective.
[[nodiscard]] const BoardOperation* in_hand(const BoardView& view);
/// The same of those that nobody waits for.
[[nodiscard]] const BoardOperation* under_way(const BoardView& view);

/// A group does its collectives in order: who waits for one waits for those before it.
void pass_waits_on(BoardView& view);

/// Whether the worker has called something in the last `time`: then it does not wait for what it only looks at.
[[nodiscard]] bool is_going_on(const BoardView& view, std::chrono::nanoseconds time);

/// For how long the worker waits for `operation` as far as that can be its fault: not before it has begun. Empty: it
/// does not wait for it. `going_on`: see there.
[[nodiscard]] std::optional<std::chrono::nanoseconds> waits_for(const BoardOperation& operation, bool going_on);

/// "35 ms", "4.2 s", "3 min"
[[nodiscard]] std::string how_long(std::chrono::nanoseconds duration);

}  // namespace ddprun::coordinator

#pragma once
// The verdict on a job that stands still: who keeps whom waiting, in one line. Pure: boards in, words out. The rules
// are in docs/design/010-boards.md.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::coordinator {

enum class StallKind {
    kNone,        ///< nobody has been in an operation for so long
    kDead,        ///< peers wait for a worker that has ended
    kMismatch,    ///< the ranks called different operations
    kLagging,     ///< peers wait for ranks that have not come, or whose process is stopped
    kAllPresent,  ///< all have come, and it does not end: the transport
    kCircle,      ///< groups wait for each other
    kUnknown,     ///< those who are waited for have shown no board, or it is not known who they are
};

struct StallVerdict {
    StallKind kind = StallKind::kNone;
    std::string text;             ///< one line; may hold what workers wrote
    std::string text_after = {};  ///< the same for who reads it when the group has been ended: nobody is stopped now
    std::string group = {};
    std::uint64_t seq = 0;        ///< of the collective that it is about, or after which a send or receive came
    std::vector<int> ranks = {};  ///< whom it names
    std::uint64_t p2p_seq = 0;    ///< of the send or receive that it is about; 0: a collective
    int waiter = -1;              ///< the rank that is in it, for each counts its own; of a collective -1
    std::string hint = {};        ///< what to do next, with `text`; empty: that says it
    std::string hint_after = {};  ///< the same with `text_after`
    std::vector<int> blamed = {};  ///< whose fault it is; empty: not known
};

/// `boards`: at most one per rank; ranks may be missing, or have shown nothing but their host. `patience`: who has been
/// in an operation for less is not stuck.
[[nodiscard]] StallVerdict judge(const std::vector<RankBoard>& boards, std::chrono::nanoseconds patience);

/// "rank 3", "ranks 0-3, 8, 10-12", "ranks 0, 2, … (500)": at most eight ranges. Sorted, without duplicates.
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks);

}  // namespace ddprun::coordinator

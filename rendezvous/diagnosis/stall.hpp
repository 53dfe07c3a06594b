#pragma once
// Diagnoses a job without progress: one line says which ranks keep which others waiting. Pure.
// docs/design/010-flight-recorder.md has the rules.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/diagnosis/diagnosis.hpp"
#include "rendezvous/protocol/inspection.hpp"

namespace ddprun::diagnosis {

using namespace protocol;  // the diagnosis works on these messages

/// The flight records of different hosts are read up to this long apart.
inline constexpr std::chrono::nanoseconds kSameMoment = std::chrono::seconds(1);

/// The cause of a stall.
enum class StallKind {
    kNone,        ///< no rank is stuck in an operation
    kLink,        ///< two nodes cannot reach each other: link.hpp
    kDead,        ///< peers wait for a worker that has ended
    kMismatch,    ///< the ranks called different operations
    kLagging,     ///< peers wait for ranks that have not arrived, or whose process is stopped
    kAllPresent,  ///< all ranks have arrived, and the operation does not end: the transport
    kCircle,      ///< groups wait for each other
    kUnknown,     ///< peers wait for ranks without a flight record, or it is not known for which ranks
};

/// The diagnosis of a job as one line, and the facts that it is made of.
struct StallVerdict {
    StallKind kind = StallKind::kNone;
    std::string text;             ///< one line; may hold what workers wrote
    std::string text_after = {};  ///< past-tense form, used after the group has ended
    std::string group = {};
    std::uint64_t seq = 0;            ///< the collective that it is about, or that preceded the send or receive
    std::vector<int> ranks = {};      ///< the ranks that it names
    std::uint64_t p2p_seq = 0;        ///< the send or receive that it is about; 0: a collective
    int waiter = -1;                  ///< the rank that counted it as `p2p_seq`: each counts its own; -1: a collective
    std::string hint = {};            ///< what to do next, with `text`; empty: the text contains it
    std::string hint_after = {};      ///< the same with `text_after`
    std::vector<int> culprits = {};   ///< the ranks that caused it; empty: not known
    std::vector<CutLink> links = {};  ///< of kLink
    bool names_stopped = false;       ///< `text` names a stopped process, and the command that continues it
};

/// Returns the verdict on a job. A cut link explains every wait, so it counts first. `records`: at most one per rank;
/// ranks may be missing, or have nothing but their host. `min_wait`: a rank that has been in an operation for less is
/// not stuck.
[[nodiscard]] StallVerdict diagnose(const std::vector<RankRecord>& records, std::chrono::nanoseconds min_wait);

}  // namespace ddprun::diagnosis

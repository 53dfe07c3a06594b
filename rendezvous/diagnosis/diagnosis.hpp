#pragma once
// Diagnosis: the conclusion about a failure, or about a deadline that has passed. The inquiries make it; the
// coordinator keeps the newest one for the verdict of the job. Plain values.

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.hpp"

namespace ddprun::diagnosis {

/// Two nodes that cannot reach each other, by display name, in alphabetical order.
struct CutLink {
    std::string first;
    std::string second;
    friend auto operator<=>(const CutLink&, const CutLink&) = default;
};

struct Diagnosis {
    std::string text;                ///< one line, in the past tense; empty: the flight records do not show the cause
    std::string hint = {};           ///< what to do next
    std::vector<int> culprits = {};  ///< ranks that caused the failure; empty: not known
    std::optional<Rank> dead = {};   ///< set: the text is about the end of this worker, and valid for no other one
    std::string detail = {};         ///< of `dead`: the text without its head, for lines that name rank and end already
    bool names_activity = false;     ///< of `dead`: the text contains FailureReport::activity
    std::vector<CutLink> links = {};  ///< set: the network between these nodes is the cause, and no rank
    friend bool operator==(const Diagnosis&, const Diagnosis&) = default;
};

}  // namespace ddprun::diagnosis

#pragma once
// MeetingPoint: a place outside the job where agents find the address of its daemon. Called by meet() before the agent
// starts, and once at the job's end; one thread. docs/design/018 has the reasons.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/error.hpp"

namespace ddprun::launcher {

/// The end of a job does not wait longer for its meeting point.
inline constexpr std::chrono::milliseconds kWithdrawLimit{5000};
/// A point that has not answered for this time is reported.
inline constexpr std::chrono::milliseconds kReportWaitAfter{1000};

/// A value as it is at the meeting point.
struct Published {
    std::string value;
    std::int64_t version = 0;  ///< grows with every change under the name, and is never used twice
    friend bool operator==(const Published&, const Published&) = default;
};

/// The outcome of a claim.
struct Claim {
    bool mine = false;
    std::optional<Published> there;  ///< the value under the name now; absent: it was withdrawn meanwhile
};

/// A place that holds one value per name. Every call blocks up to a limit of its own; an error is final and names the
/// place.
class MeetingPoint {
public:
    MeetingPoint() = default;
    MeetingPoint(const MeetingPoint&) = delete;
    MeetingPoint& operator=(const MeetingPoint&) = delete;
    virtual ~MeetingPoint() = default;

    /// Returns the value under `name`, if there is one.
    [[nodiscard]] virtual Result<std::optional<Published>> read(const std::string& name) = 0;
    /// Publishes `value` if the name is free, or if its value still is `replaces`. Of several callers one wins. Values
    /// must differ from each other.
    [[nodiscard]] virtual Result<Claim> claim(const std::string& name, const std::string& value,
                                              const std::optional<Published>& replaces) = 0;
    /// Frees the name if its value still is `mine`. Blocks for kWithdrawLimit at most.
    [[nodiscard]] virtual Result<void> withdraw(const std::string& name, const Published& mine) = 0;

    /// Returns the place of `name` for messages: "etcd at n1:2379, key 'ddprun/x'".
    [[nodiscard]] virtual std::string where(const std::string& name) const = 0;
    /// Returns the command that removes the value of `name`, to be used when its job has ended.
    [[nodiscard]] virtual std::string removal(const std::string& name) const = 0;
    /// Returns what to pass for a job that is to meet elsewhere, for messages.
    [[nodiscard]] virtual std::string elsewhere() const { return "another --rdzv-id"; }
    /// Returns the address of this host on the way to the place, after a call; empty: unknown.
    [[nodiscard]] virtual std::string own_address() const { return {}; }
};

}  // namespace ddprun::launcher

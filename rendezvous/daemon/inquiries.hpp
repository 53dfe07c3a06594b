#pragma once
// Inquiries: asks the agents for the boards of their workers, when one of them reports a stall or a ddpctl wants to see
// them, and says what they add up to. Pure: no socket, no clock; the daemon performs the actions.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/coordinator/stall.hpp"
#include "rendezvous/coordinator/state.hpp"

namespace ddprun::daemon {

/// Who asks, of the connections that are no agents'.
enum class InspectorId : std::uint64_t {};

struct ToAgent {
    coordinator::NodeId node;
    coordinator::DaemonMessage message;
    friend bool operator==(const ToAgent&, const ToAgent&) = default;
};
struct ToInspector {
    InspectorId inspector{};
    coordinator::DaemonMessage message;
    friend bool operator==(const ToInspector&, const ToInspector&) = default;
};
/// The verdict on a stall, for the log; every agent is told as well.
struct Conclusion {
    std::string text;
    friend bool operator==(const Conclusion&, const Conclusion&) = default;
};
/// A worker has failed, by a deadline or by its end; JudgedFailure will say who kept it waiting, or who waited for it,
/// within kFailurePatience.
struct JudgingFailure {
    Generation generation{};
    friend bool operator==(const JudgingFailure&, const JudgingFailure&) = default;
};
struct JudgedFailure {
    Generation generation{};
    std::string text;               ///< for when the group has been ended; may be empty
    std::optional<Rank> dead = {};  ///< as in coordinator::Judged
    std::string detail = {};
    std::string hint = {};
    std::vector<int> blamed = {};
    friend bool operator==(const JudgedFailure&, const JudgedFailure&) = default;
};
using InquiryAction = std::variant<ToAgent, ToInspector, Conclusion, JudgingFailure, JudgedFailure>;
using InquiryActions = std::vector<InquiryAction>;

class Inquiries {
public:
    /// For so long an answer is waited for.
    static constexpr std::chrono::seconds kPatience{3};
    /// The same when a worker has failed: the end of its group waits for that.
    static constexpr std::chrono::seconds kFailurePatience{1};
    /// For ddpctl, who has been in an operation for less is not called stuck.
    static constexpr std::chrono::seconds kStuckAfter{5};
    /// Between two inquiries about stalls, however many are reported; twice as long after each that brought nothing
    /// new, up to kMaxPause.
    static constexpr std::chrono::seconds kPause{5};
    static constexpr std::chrono::seconds kMaxPause{30};
    /// For so long a verdict on the same ranks is not repeated; twice as long each time, up to kMaxQuiet.
    static constexpr std::chrono::minutes kQuiet{1};
    static constexpr std::chrono::minutes kMaxQuiet{60};
    /// When nobody has ended well for so long since somebody did, those who are left are looked at.
    static constexpr std::chrono::seconds kLeftBehindAfter{5};
    /// While one of them goes on, they are looked at again after twice as long each time, up to this.
    static constexpr std::chrono::minutes kMaxLeftPause{5};

    InquiryActions stalled(const coordinator::State& state, const coordinator::NodeId& from,
                           const coordinator::Stalled& report, TimePoint now);
    /// A worker has failed, and `state` says what is taken for the cause: looks into that if nobody has yet.
    InquiryActions failed(const coordinator::State& state, TimePoint now);
    /// Not while it is_open(): an inspector asks for one thing at a time.
    InquiryActions inspect(const coordinator::State& state, InspectorId inspector, const coordinator::Inspect& wish,
                           TimePoint now);
    InquiryActions shown(const coordinator::State& state, const coordinator::NodeId& from,
                         coordinator::ShownBoard board, TimePoint now);
    /// Ends what has waited too long, and does not wait for nodes that are gone.
    InquiryActions tick(const coordinator::State& state, TimePoint now);
    void forget(InspectorId inspector);
    /// Whether an answer to that inspector is still being collected.
    [[nodiscard]] bool is_open(InspectorId inspector) const;

private:
    struct Inquiry {
        Generation generation{};
        std::optional<InspectorId> inspector;  ///< empty: a stall
        std::chrono::nanoseconds patience{0};
        TimePoint deadline;
        int world_size = 0;
        std::set<coordinator::NodeId> missing;
        std::vector<coordinator::RankBoard> boards;
        bool whole = true;                   ///< of all ranks
        bool after_failure = false;          ///< about a worker that has failed
        bool about_the_last = false;         ///< about those who go on when others have ended well
        std::chrono::nanoseconds recent{0};  ///< the same: since the inquiry before it was asked
    };

    InquiryActions ask(const coordinator::State& state, Inquiry inquiry, std::optional<Rank> rank, int operations,
                       TimePoint now);
    InquiryActions ask_about_stall(const coordinator::State& state, std::chrono::nanoseconds patience, TimePoint now);
    InquiryActions ask_about_timeouts(const coordinator::State& state, TimePoint now);
    InquiryActions ask_about_failure(const coordinator::State& state, std::chrono::nanoseconds recent, TimePoint now);
    [[nodiscard]] bool failure_is_open() const;
    InquiryActions ask_about_the_last(const coordinator::State& state, TimePoint now);
    void conclude_the_last(const coordinator::State& state, const Inquiry& inquiry, InquiryActions& actions);
    void conclude(const coordinator::State& state, const Inquiry& inquiry, TimePoint now, InquiryActions& actions);
    void conclude_failure(const coordinator::State& state, const Inquiry& inquiry, TimePoint now,
                          InquiryActions& actions);
    void tell_timeout(const coordinator::State& state, const Inquiry& inquiry,
                      const std::vector<coordinator::RankBoard>& boards, TimePoint now, InquiryActions& actions);
    [[nodiscard]] coordinator::StallVerdict new_timeout(const std::vector<coordinator::RankBoard>& boards,
                                                        std::chrono::nanoseconds recent, TimePoint now,
                                                        coordinator::StallVerdict* known);
    [[nodiscard]] bool timeout_is_news(const coordinator::StallVerdict& verdict, TimePoint now);
    void answer(const coordinator::State& state, const Inquiry& inquiry, std::string verdict,
                InquiryActions& actions) const;
    [[nodiscard]] bool is_news(const coordinator::StallVerdict& verdict, std::chrono::nanoseconds patience,
                               TimePoint now);
    /// The boards that have come and, of ranks that have shown none, where they are.
    [[nodiscard]] static std::vector<coordinator::RankBoard> boards_of(const coordinator::State& state,
                                                                       const Inquiry& inquiry);
    /// A line, and what to do next where the line does not say it.
    static void tell_all(const coordinator::State& state, std::string text, const std::string& hint,
                         InquiryActions& actions);
    /// Whether that node can be asked, and told.
    [[nodiscard]] static bool answers(const coordinator::State& state, const coordinator::NodeId& id);
    void remind(std::chrono::nanoseconds patience, TimePoint when);
    void forget_older_generations(Generation now);

    /// A stall that waits to be asked about.
    struct Reminder {
        std::chrono::nanoseconds patience{0};
        TimePoint when;
    };
    /// Of one stall: the numbers of the collective, or of the send or receive and whose.
    using Occasion = std::tuple<std::uint64_t, std::uint64_t, int>;
    /// A verdict that was given.
    struct Told {
        Occasion occasion;
        std::chrono::nanoseconds quiet{0};
        TimePoint until;
    };
    using Culprit = std::tuple<coordinator::StallKind, std::string, std::vector<int>>;  ///< kind, group, ranks

    std::map<std::uint64_t, Inquiry> open_;  ///< by request number
    std::uint64_t last_request_ = 0;
    Generation generation_{-1};  ///< of what follows
    bool stall_is_open_ = false;
    std::optional<Reminder> reminder_;
    TimePoint quiet_until_{};        ///< no inquiry about a stall before
    bool timeout_waits_ = false;     ///< one that is to be asked about …
    TimePoint timeouts_asked_at_{};  ///< … a while after this: peers fail of the same deadline, too
    std::map<std::pair<std::string, Occasion>, TimePoint> told_timeouts_;  ///< by group; when they were last met with
    std::optional<Rank> failed_;                                           ///< whose end was asked about last
    std::chrono::nanoseconds pause_ = kPause;
    std::map<Culprit, Told> told_;
    TimePoint last_asked_at_{};                          ///< those who are left when others have ended well …
    std::chrono::nanoseconds last_pause_{kPause};        ///< … and how long not again
    std::optional<TimePoint> last_end_;                  ///< when the newest of those ended
    std::optional<std::chrono::nanoseconds> last_told_;  ///< that they are stopped, and so long not again
};

}  // namespace ddprun::daemon

#include "launcher/meeting/meet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/text/number.hpp"
#include "launcher/host/this_host.hpp"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{200};
/// Between two questions about a job that is ending: thousands of nodes may ask.
constexpr milliseconds kMaxPause{2000};
constexpr milliseconds kReportAfter{1000};
/// For a ddprund of this machine to publish its address or to end: ddprun waits as long for a daemon to start.
constexpr milliseconds kPortLimit{10'000};

/// The reasons of a wait, each with its own limit.
enum class Wait {
    kSilence,  ///< the published daemon does not answer
    kEnd,      ///< the published daemon serves a job that is ending
    kPort,     ///< another ddprund of this machine has the port
    kAddress,  ///< another node has to host the daemon
};

Wait wait_of(const Sight& sight) {
    if (sight.published && sight.reach == Reach::kSilent) return Wait::kSilence;
    if (sight.published && sight.reach == Reach::kEnding) return Wait::kEnd;
    return sight.port_taken ? Wait::kPort : Wait::kAddress;
}

const char* state_of(Reach reach) {
    switch (reach) {
        case Reach::kAnswers: return "answers";
        case Reach::kComplete: return "has all its nodes";
        case Reach::kEnding: return "serves a job that is ending";
        case Reach::kEnded: return "has ended";
        case Reach::kSilent: return "does not answer";
    }
    return "";
}

/// Participant: one node's way through a meeting. Owned by meet(). Stops its daemon unless the claim succeeds.
class Participant {
public:
    Participant(MeetingPoint& point, const std::string& name, const MeetingSettings& settings, MeetingNode& node)
        : point_(point), name_(name), settings_(settings), node_(node) {
        sight_.may_host = settings.may_host;
        sight_.spare = settings.spare;
    }
    ~Participant() { stop_own(); }
    Participant(const Participant&) = delete;
    Participant& operator=(const Participant&) = delete;

    Result<Meeting> run() {
        if (const Result<void> looked = look(); !looked) return looked.error();
        for (;;) {
            const Move move = next_move(sight_);
            if (move == Move::kJoin) return Meeting{*published_, std::nullopt};
            const Result<void> done = move == Move::kStart ? start() : move == Move::kClaim ? claim() : wait();
            if (!done) return done.error();
            if (mine_) return Meeting{*std::exchange(own_, std::nullopt), std::move(mine_)};
        }
    }

private:
    Result<void> look() {
        auto seen = point_.read(name_);
        return seen ? take(std::move(*seen)) : Result<void>(seen.error());
    }

    /// Takes in the value under the name and asks at its address.
    Result<void> take(std::optional<Published> seen) {
        if (seen != seen_) wait_.reset();
        seen_ = std::move(seen);
        published_.reset();
        sight_.published = seen_.has_value();
        if (!seen_) return {};
        auto record = parse_daemon_record(seen_->value);
        if (!record) {
            Error error = with_context(fmt::format("cannot use the value at {}", point_.where(name_)), record.error());
            error.message += fmt::format(". {}", advice());
            return error;
        }
        published_ = std::move(*record);
        if (is_out_of_reach(*published_)) {
            return Error{Errc::kUnreachable,
                         fmt::format("the daemon of this job listens at {}, which only its own host can reach: that "
                                     "host has no other address. {}",
                                     to_string(*published_), advice())};
        }
        sight_.reach = node_.reach(published_->address);
        // Asked again: one refusal may be an accident of the network, and a job that seems complete may be about to
        // notice that it was killed. If it is complete, its daemon explains that to the node best.
        if (sight_.reach == Reach::kEnded || sight_.reach == Reach::kComplete) {
            node_.pause(kLookAgain);
            sight_.reach = node_.reach(published_->address);
        }
        return {};
    }

    [[nodiscard]] bool is_out_of_reach(const DaemonRecord& record) const {
        return is_loopback(record.address.host) && record.host != node_.host();
    }

    Result<void> start() {
        auto started = node_.start_daemon(point_.own_address());
        if (!started) return started.error();
        own_ = std::move(*started);
        sight_.started = own_.has_value();
        sight_.port_taken = !sight_.started;
        return {};
    }

    Result<void> claim() {
        auto claimed = point_.claim(name_, to_json(*own_), seen_);
        if (!claimed) return claimed.error();
        if (!claimed->mine) return take(std::move(claimed->there));
        if (!node_.daemon_runs()) {  // the claim has taken too long; the value is replaced by the next daemon's
            stop_own();
            return take(std::move(claimed->there));
        }
        mine_ = std::move(claimed->there);
        if (published_) {
            node_.report(fmt::format("replaced the address {} of an ended daemon at {}", to_string(*published_),
                                     point_.where(name_)));
        }
        return {};
    }

    void stop_own() {
        if (own_) node_.stop_daemon();
        own_.reset();
        sight_.started = false;
    }

    Result<void> wait() {
        const TimePoint now = node_.now();
        if (const Wait wait = wait_of(sight_); wait != wait_) {
            wait_ = wait;
            waiting_since_ = now;
            reported_ = false;
            pause_ = kLookAgain;
        }
        const milliseconds limit = wait_ == Wait::kPort      ? kPortLimit
                                   : wait_ == Wait::kAddress ? settings_.publish_limit
                                                             : settings_.silence_limit;
        if (now - waiting_since_ >= limit) return gave_up(limit);
        if (!reported_ && now - waiting_since_ >= kReportAfter) {
            reported_ = true;
            node_.report(fmt::format("waiting: {}; giving up after {}", reason(), seconds_text(limit)));
        }
        stop_own();  // without an agent it would end meanwhile
        sight_.port_taken = false;
        node_.pause(pause_);
        if (wait_ == Wait::kEnd) pause_ = std::min(2 * pause_, kMaxPause);
        return look();
    }

    [[nodiscard]] std::string reason() const {
        if (wait_ == Wait::kPort)
            return "a ddprund of this machine has the port of --master-port, and has not published its address";
        if (!sight_.published) return fmt::format("no daemon is published at {}", point_.where(name_));
        return fmt::format("the daemon at {}, published at {}, {}", to_string(*published_), point_.where(name_),
                           state_of(sight_.reach));
    }

    [[nodiscard]] Error gave_up(milliseconds limit) const {
        return {wait_ == Wait::kPort ? Errc::kInUse : Errc::kTimeout,
                fmt::format("cannot join the job within {}: {}. {}", seconds_text(limit), reason(), remedy())};
    }

    [[nodiscard]] std::string remedy() const {
        if (wait_ == Wait::kPort) return "If it belongs to another job, pass another --master-port, or none.";
        if (wait_ == Wait::kEnd) {
            return "Start this node again when that job has ended, or pass a longer time to wait: --rdzv-conf "
                   "read_timeout=SECONDS.";
        }
        if (sight_.published) return advice();
        return "is_host=0 keeps this node from hosting it: start the node that may host it.";
    }

    [[nodiscard]] std::string advice() const {
        return fmt::format("If no job of this name runs, remove the value ({}), or pass {}.", point_.removal(name_),
                           point_.elsewhere());
    }

    MeetingPoint& point_;
    const std::string& name_;
    const MeetingSettings& settings_;
    MeetingNode& node_;
    Sight sight_;
    std::optional<Published> seen_;
    std::optional<DaemonRecord> published_;  ///< seen_, parsed
    std::optional<DaemonRecord> own_;        ///< the daemon that was started here
    std::optional<Published> mine_;
    std::optional<Wait> wait_;  ///< empty: the value under the name has changed
    TimePoint waiting_since_;   ///< for the reason wait_
    milliseconds pause_ = kLookAgain;
    bool reported_ = false;
};

}  // namespace

Move next_move(const Sight& sight) {
    if (sight.published) {
        if (sight.reach == Reach::kAnswers || sight.reach == Reach::kComplete) return Move::kJoin;
        if (sight.reach == Reach::kEnding) return sight.spare ? Move::kJoin : Move::kWait;
        if (sight.reach == Reach::kSilent) return Move::kWait;
    }
    if (!sight.may_host) return Move::kWait;
    if (sight.started) return Move::kClaim;
    return sight.port_taken ? Move::kWait : Move::kStart;
}

Result<Meeting> meet(MeetingPoint& point, const std::string& name, const MeetingSettings& settings, MeetingNode& node) {
    return Participant(point, name, settings, node).run();
}

}  // namespace ddprun::launcher

#include "launcher/meeting/meet.hpp"

#include <fmt/format.h>

#include <utility>

#include "common/text/number.hpp"
#include "launcher/host/this_host.hpp"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{200};
constexpr milliseconds kReportAfter{1000};
/// For a ddprund of this machine to publish its address or to end: ddprun waits as long for a daemon to start.
constexpr milliseconds kPortLimit{10'000};

/// Returns whether what is published may soon be that of an ended daemon, and is not yet.
bool is_held_up(const Sight& sight) {
    return sight.published && (sight.reach == Reach::kSilent || sight.reach == Reach::kEnding);
}

const char* state_of(Reach reach) {
    switch (reach) {
        case Reach::kAnswers: return "answers";
        case Reach::kComplete: return "has all its nodes";
        case Reach::kEnding: return "serves a job of this name that is ending";
        case Reach::kEnded: return "has ended";
        case Reach::kSilent: return "does not answer";
    }
    return "";
}

/// Participant: one node's way through a meeting. Owned by meet(). Stops its daemon unless the claim succeeds.
class Participant {
public:
    Participant(MeetingPoint& point, const std::string& name, const MeetingSettings& settings, MeetingNode& node)
        : point_(point), name_(name), settings_(settings), node_(node), waiting_since_(node.now()) {}
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
        if (seen != seen_) waiting_since_ = node_.now();
        seen_ = std::move(seen);
        published_.reset();
        sight_.published = seen_.has_value();
        sight_.may_host = settings_.may_host;
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
        const milliseconds limit = is_held_up(sight_) ? settings_.silence_limit
                                   : sight_.may_host  ? kPortLimit
                                                      : settings_.publish_limit;
        const TimePoint now = node_.now();
        if (now - waiting_since_ >= limit) return gave_up(limit);
        if (!reported_ && now - waiting_since_ >= kReportAfter) {
            reported_ = true;
            node_.report(fmt::format("waiting: {}; giving up after {}", reason(), seconds_text(limit)));
        }
        stop_own();  // without an agent it would end meanwhile
        sight_.port_taken = false;
        node_.pause(kLookAgain);
        return look();
    }

    /// Returns whether this node could host the job if the port were free.
    [[nodiscard]] bool lacks_port() const { return sight_.port_taken || (!sight_.published && sight_.may_host); }

    [[nodiscard]] std::string reason() const {
        if (lacks_port())
            return "a ddprund of this machine has the port of --master-port, and has not published its address";
        if (!sight_.published) return fmt::format("no daemon is published at {}", point_.where(name_));
        return fmt::format("the daemon at {}, published at {}, {}", to_string(*published_), point_.where(name_),
                           state_of(sight_.reach));
    }

    [[nodiscard]] Error gave_up(milliseconds limit) const {
        const std::string remedy = lacks_port() ? "If it belongs to another job, pass another --master-port, or none."
                                   : sight_.published
                                       ? advice()
                                       : "is_host=0 keeps this node from hosting it: start the node that may host it.";
        return {lacks_port() ? Errc::kInUse : Errc::kTimeout,
                fmt::format("cannot join the job within {}: {}. {}", seconds_text(limit), reason(), remedy)};
    }

    [[nodiscard]] std::string advice() const {
        return fmt::format("If no job of this name runs, remove the value ({}), or pass another --rdzv-id.",
                           point_.removal(name_));
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
    TimePoint waiting_since_;  ///< since the value under the name has not changed
    bool reported_ = false;
};

}  // namespace

Move next_move(const Sight& sight) {
    if (sight.published && (sight.reach == Reach::kAnswers || sight.reach == Reach::kComplete)) return Move::kJoin;
    if (is_held_up(sight)) return Move::kWait;
    if (!sight.may_host) return Move::kWait;
    if (sight.started) return Move::kClaim;
    return sight.port_taken ? Move::kWait : Move::kStart;
}

Result<Meeting> meet(MeetingPoint& point, const std::string& name, const MeetingSettings& settings, MeetingNode& node) {
    return Participant(point, name, settings, node).run();
}

}  // namespace ddprun::launcher

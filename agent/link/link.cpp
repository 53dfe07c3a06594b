#include "agent/link/link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/overloaded.hpp"
#include "common/text/number.hpp"
#include "common/text/utf8.hpp"

namespace ddprun::agent::link {
namespace {

using namespace protocol;
using namespace std::chrono_literals;

/// Of a daemon that this node has reached before: others wait for this node, and a healed network is to be found soon.
constexpr client::Pace kDialAgain{
    .max_pause = kDialInterval, .try_time = 1500ms, .first_try_time = 100ms, .reports = false};

/// Returns when a connection to a daemon that has never welcomed this node, and does not answer, is given up.
TimePoint first_answer_due(const State& state) {
    return std::max(given_up_at(state), state.joined_at + state.lease.heartbeat_interval());
}

/// Returns whether another server has answered the dial that failed with this error.
bool has_answered(const Error& error) {
    return error.code != Errc::kUnreachable && error.code != Errc::kTimeout && error.code != Errc::kClosed;
}

/// Transition: the step in progress. Its on() functions handle one event each.
class Transition {
public:
    Transition(State state, TimePoint now) : state_(std::move(state)), now_(now) {}

    Step take() && { return {std::move(state_), std::move(actions_)}; }

    void on(Started);
    void on(Connected);
    void on(DialFailed event);
    void on(Received event);
    void on(ConnectionEnded event);
    void on(Reported event);
    void on(GroupBegun event);
    void on(Closed);
    void on(Tick);
    /// Notes that this process, or its machine, stood still: an event that was due has come late.
    void note_pause(std::optional<TimePoint> due) {
        if (due && now_ - *due > state_.lease.heartbeat_interval()) state_.lease.stood_still(now_, now_ - *due);
    }

private:
    void act(Action action) { actions_.push_back(std::move(action)); }
    void send(AgentMessage message) { act(Send{std::move(message)}); }
    void raise(agent::Happening event) { act(Raise{std::move(event)}); }
    /// Before the Welcome, the daemon may be that of a job that is over, and that of the next one may follow.
    [[nodiscard]] bool may_connect_again() const {
        return (state_.welcomed || now_ < given_up_at(state_)) && !state_.over;
    }
    [[nodiscard]] std::string cause_of_failed_dial(const Error& error) const;
    void dial();
    [[nodiscard]] std::string silence() const;
    [[nodiscard]] std::string first_silence() const;
    [[nodiscard]] std::string unreached() const;
    void end_lease();
    void end_hold();
    void reset_silent();
    void accept(const Welcome& welcome);
    void reject(const Rejected& rejected);
    void reject_for_now(const Rejected& rejected);
    void lose(std::string why);

    State state_;
    TimePoint now_;
    std::vector<Action> actions_;
};

void Transition::on(Started) {
    state_.begun = now_;
    dial();
}

/// Before the first Welcome, waits for a daemon that may not have begun. Later, for one that may not be back in time.
void Transition::dial() {
    state_.phase = Phase::kDialing;
    state_.dialed_at = now_;
    client::Pace pace;
    if (state_.welcomed) {
        pace = kDialAgain;
        pace.refused_until = state_.lease.ended_for_good_at();
    }
    act(Dial{given_up_at(state_), pace});
}

/// Sends Join, and every report that the daemon may have missed on an earlier connection, in order. The daemon ignores
/// those that it has.
void Transition::on(Connected) {
    state_.phase = Phase::kConnected;
    state_.joined_at = now_;
    state_.lease.join_sent(now_);
    state_.welcome_due = now_ + (state_.welcomed ? std::min<Duration>(kWelcomeTimeout, state_.lease.length())
                                                 : state_.first_welcome_timeout);
    send(state_.join);
    for (const AgentMessage& report : state_.reports) send(report);
}

void Transition::on(DialFailed event) {
    const bool is_silent = event.error.code == Errc::kTimeout;
    const TimePoint again_until = is_silent                    ? given_up_at(state_)
                                  : !has_answered(event.error) ? state_.lease.asked_until()
                                                               : TimePoint();
    if (state_.welcomed && now_ + kDialInterval < again_until) return dial();  // this process stood still meanwhile
    if (state_.welcomed) return lose(cause_of_failed_dial(event.error));
    lose(is_silent && state_.fell_silent ? first_silence() : std::move(event.error.message));
}

/// Returns why the daemon that this node had is out of reach, with the error if a server has answered.
std::string Transition::cause_of_failed_dial(const Error& error) const {
    const std::string text = unreached();
    if (error.code == Errc::kClosed) return text + ": its port refuses connections";
    if (!has_answered(error)) return text;
    const std::string why = fmt::format("{}: {}", text, error.message);
    return why.ends_with('.') ? why.substr(0, why.size() - 1) : why;
}

void Transition::on(ConnectionEnded event) {
    state_.welcome_due.reset();
    state_.lease.connection_ended(now_);
    state_.fell_silent = !state_.silence.empty();
    state_.broken = state_.silence.empty() ? "lost " + event.why : std::exchange(state_.silence, "");
    if (state_.over) {
        state_.phase = Phase::kEnded;
        return;
    }
    if (!may_connect_again()) return lose(state_.broken);
    state_.phase = Phase::kPausing;
    state_.dial_due = std::max(now_, state_.dialed_at + kDialInterval);
    if (!std::exchange(state_.interrupted, true))
        raise(ConnectionChanged{fmt::format("{}; connecting again", state_.broken)});
}

void Transition::on(Reported event) {
    if (state_.phase == Phase::kConnected) send(event.report);
    state_.reports.push_back(std::move(event.report));
}

void Transition::on(GroupBegun event) {
    std::erase_if(state_.reports, [&event](const AgentMessage& report) {
        return std::visit(
            [&event](const auto& message) {
                if constexpr (requires { message.generation; }) return message.generation < event.generation;
                return false;
            },
            report);
    });
}

void Transition::on(Closed) { state_.phase = Phase::kEnded; }

void Transition::on(Tick) {
    if (!state_.welcomed) {
        if (state_.phase == Phase::kConnected && now_ >= first_answer_due(state_)) return lose(first_silence());
        if (state_.welcome_due && now_ >= *state_.welcome_due) {
            state_.first_welcome_timeout *= 2;
            reset_silent();
        }
    } else {
        if (!state_.over && !state_.lease_ended && now_ >= state_.lease.ends()) end_lease();
        if (!state_.over && !state_.hold_ended && now_ >= state_.lease.held_until()) end_hold();
        if (!state_.over && now_ >= given_up_at(state_)) return lose(unreached());
        if (state_.welcome_due && now_ >= *state_.welcome_due) reset_silent();
        if (now_ >= state_.heartbeat_due) {
            state_.heartbeat_due = now_ + state_.lease.heartbeat_interval();
            if (state_.phase == Phase::kConnected) send(state_.lease.next_heartbeat(now_));
        }
    }
    if (state_.phase == Phase::kPausing && now_ >= state_.dial_due) dial();
}

/// Stops the workers until the daemon is reached again.
void Transition::end_lease() {
    state_.lease_ended = true;
    if (state_.phase == Phase::kConnected) reset_silent();
    raise(LeaseEnded{fmt::format("{} is not connected", state_.daemon), state_.lease.held_until()});
}

/// Ends the workers: the daemon has not been reached for as long as they wait for it.
void Transition::end_hold() {
    state_.hold_ended = true;
    raise(HoldEnded{unreached(), given_up_at(state_)});
}

std::string Transition::silence() const {
    if (!state_.welcomed)
        return fmt::format("{} has sent nothing for {}", state_.daemon, rounded_seconds_text(now_ - state_.joined_at));
    const std::string pause =  // the daemon may have answered meanwhile
        now_ < state_.lease.asked_until()
            ? fmt::format("this node stood still for {}, and ", rounded_seconds_text(state_.lease.latest_pause()))
            : "";
    return fmt::format("{}{} has confirmed nothing for {}", pause, state_.daemon,
                       rounded_seconds_text(now_ - state_.lease.confirmed_at()));
}

/// Returns that the daemon has never answered this node.
std::string Transition::first_silence() const {
    return fmt::format("{} has sent nothing for {}", state_.daemon, seconds_text(state_.connect_timeout));
}

/// Returns that the daemon, which this node had, was not reached again.
std::string Transition::unreached() const {
    const bool is_silent = state_.fell_silent || !state_.silence.empty();
    return (is_silent ? silence() : state_.broken) + ", and it could not be reached again";
}

/// Resets the connection, which confirms nothing any more; another one follows.
void Transition::reset_silent() {
    state_.welcome_due.reset();
    if (state_.phase != Phase::kConnected) return;
    state_.silence = silence();
    act(Reset{});
}

void Transition::accept(const Welcome& welcome) {
    state_.lease.welcomed(welcome);
    if (state_.welcomed && now_ >= state_.lease.ends()) {  // it has waited in the socket while this process stood still
        if (!std::exchange(state_.lease_ended, true)) return end_lease();
        return reset_silent();
    }
    state_.lease_ended = state_.hold_ended = false;
    state_.welcome_due.reset();
    const bool again = std::exchange(state_.welcomed, true);
    if (!again) state_.heartbeat_due = now_;
    act(ReleaseStandby{});  // this daemon is that of the job
    state_.daemon_knows_records = welcome.records;
    if (!welcome.session.empty()) state_.join.session = welcome.session;
    if (std::exchange(state_.interrupted, false))
        raise(ConnectionChanged{fmt::format("connected to the rendezvous daemon{}", again ? " again" : ""), true});
    raise(Welcomed{welcome.run_id, welcome.node_name, welcome.session, welcome.lost, welcome.worker_key});
}

/// Reports that the daemon does not take this node now. Another try follows.
void Transition::reject_for_now(const Rejected& rejected) {
    if (std::exchange(state_.rejection, printable(rejected.reason)) == printable(rejected.reason)) return;
    state_.interrupted = true;
    raise(ConnectionChanged{
        state_.rejected_for_good_at
            ? fmt::format("{} rejects this node, which tries again for {} in case a node of that job is lost: {}",
                          state_.daemon, seconds_text(rejected.try_for), state_.rejection)
            : fmt::format("{} rejects this node: {}; trying again", state_.daemon, state_.rejection)});
}

void Transition::reject(const Rejected& rejected) {
    const bool is_limited = rejected.try_again && rejected.try_for > 0ms;
    if (is_limited && !state_.rejected_for_good_at) {
        state_.rejected_for_good_at = now_ + rejected.try_for;
        act(ReleaseStandby{});  // this node may replace a lost one, and does not begin a job of its own
    }
    const bool in_vain = is_limited && now_ >= *state_.rejected_for_good_at;
    if (rejected.try_again && !state_.welcomed && !in_vain) return reject_for_now(rejected);
    state_.over = true;
    raise(DaemonLost{fmt::format("{} rejects this node{}: {}", state_.daemon, state_.welcomed ? " again" : "",
                                 printable(rejected.reason)),
                     state_.welcomed ? exit_code::kInfrastructure : exit_code::kUsage});
}

void Transition::lose(std::string why) {
    DaemonLost lost{std::move(why)};
    if (state_.welcomed) {
        lost.remedy = "Find out what ended ddprund on that host, or what interrupted the network; then start ";
        lost.remedy += state_.join.max_nodes == 1
                           ? "the job again"
                           : "this node's command again if the other nodes still run, else the job on all nodes";
    }
    if (!state_.welcomed && !state_.rejection.empty()) {
        if (lost.why.ends_with('.')) lost.why.pop_back();
        lost.why = fmt::format("{}. Before that, the daemon of another job rejected this node: {}", lost.why,
                               state_.rejection);
        lost.remedy = "Start the command again when that job has ended";
    }
    raise(std::move(lost));
    state_.phase = Phase::kEnded;
}

void Transition::on(Received event) {
    std::visit(Overloaded{
                   [this](const Welcome& welcome) { accept(welcome); },
                   [this](const Heartbeat& heartbeat) { state_.lease.heard(heartbeat); },
                   [this](const Waiting& waiting) {
                       const auto present = static_cast<int>(waiting.present.size());  // 0: they are many
                       raise(WaitReceived{printable(waiting.reason), present > 0 && present < waiting.min_nodes});
                   },
                   [this](Assignment& assignment) { raise(Assigned{std::move(assignment)}); },
                   [this](const Abort& abort) {
                       raise(AbortReceived{abort.generation, printable(abort.reason), abort.signal, abort.failed,
                                           abort.failing_for});
                   },
                   [this](Finished& finished) {
                       state_.over = true;
                       raise(JobFinished{std::move(finished.verdict)});
                   },
                   [this](const RequestRecords& request) { raise(RecordsRequested{request}); },
                   [this](const Notify& notify) {
                       raise(NotifyReceived{notify.generation, notify.signal, notify.number, notify.ago});
                   },
                   [this](Preempt& notice) {
                       notice.reason = printable(notice.reason);
                       raise(PreemptReceived{std::move(notice)});
                   },
                   [this](const Notice& notice) {
                       raise(NoticeReceived{{notice.generation, printable(notice.text)}});
                   },
                   [](const RecordReply&) {},  // these are for ddpctl
                   [](const Inspected&) {},
                   [](const Answer&) {},
                   [](const Status&) {},
                   [this](const Rejected& rejected) { reject(rejected); },
                   [this](VouchRequest& request) { act(AnswerVouch{std::move(request)}); },
               },
               event.message);
}

}  // namespace

TimePoint given_up_at(const State& state) {
    if (state.welcomed) return state.lease.given_up_at();
    const TimePoint end = state.begun + state.connect_timeout;
    return state.rejected_for_good_at ? std::min(end, *state.rejected_for_good_at + kLastTry) : end;
}

std::optional<TimePoint> next_deadline(const State& state) {
    if (state.phase == Phase::kIdle || state.phase == Phase::kEnded) return std::nullopt;
    std::optional<TimePoint> next;
    const auto consider = [&next](TimePoint due) { next = next ? std::min(*next, due) : due; };
    if (state.phase == Phase::kPausing) consider(state.dial_due);
    if (!state.welcomed) {
        if (state.phase == Phase::kConnected) consider(first_answer_due(state));
        if (state.welcome_due) consider(*state.welcome_due);
        return next;
    }
    consider(state.heartbeat_due);
    if (!state.over) {
        consider(!state.lease_ended  ? state.lease.ends()
                 : !state.hold_ended ? state.lease.held_until()
                                     : given_up_at(state));
    }
    if (state.welcome_due) consider(*state.welcome_due);
    return next;
}

Step step(State state, Event event) {
    if (state.phase == Phase::kEnded) return {std::move(state), {}};
    const std::optional<TimePoint> due = next_deadline(state);
    Transition transition(std::move(state), event.now);
    transition.note_pause(due);
    std::visit([&transition](auto& what) { transition.on(std::move(what)); }, event.what);
    return std::move(transition).take();
}

}  // namespace ddprun::agent::link

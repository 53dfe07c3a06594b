#include "tests/sim/agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/exit_codes.hpp"
#include "tests/sim/flight_records.hpp"

namespace ddprun::sim {

namespace link = ddprun::agent::link;
namespace worker_group = ddprun::agent::worker_group;
using namespace protocol;

Agent::Agent(Join greeting, Luck luck, World world)
    : luck_(luck),
      world_(std::move(world)),
      workers_(slots_of(greeting), luck,
               {.time = world_.time,
                .dice = world_.dice,
                .happened = [this](agent::Happening what) { raise(std::move(what)); },
                .vanished = [this](Generation generation) { world_.workers_vanished(id(), generation); }}) {
    group_.grace = greeting.stop_grace;
    group_.slots = slots_of(greeting);
    link_.daemon = "the rendezvous daemon at host:29400";
    link_.join = std::move(greeting);
    link_.connect_timeout = 60'000ms;
}

void Agent::start() {
    input([this] { to_link(link::Started{}); });
}

// ---- the agent's loop, and its pauses

void Agent::input(std::function<void()> what) {
    if (life_ != Life::kAlive) return;
    if (paused_) return waiting_.push_back(std::move(what));
    what();
    handle_events();
}

void Agent::pause(milliseconds time) {
    if (life_ != Life::kAlive || paused_ || link_.phase == link::Phase::kIdle) return;
    paused_ = true;
    world_.network.disturb(id(), world_.time.now() + time);
    world_.time.after(time, [this] { resume(); });
}

/// Its event loop sees timers that have expired first, or messages.
void Agent::resume() {
    paused_ = false;
    const bool timers_first = world_.dice.percent(50);
    if (timers_first) {
        look_at_link();
        look_at_group();
    }
    while (!waiting_.empty() && life_ == Life::kAlive) {
        waiting_.front()();
        waiting_.pop_front();
        if (world_.dice.percent(50)) handle_events();
    }
    handle_events();
    look_at_link();
    look_at_group();
}

void Agent::raise(agent::Happening what) {
    input([this, what = std::move(what)]() mutable { events_.push_back({world_.time.now(), std::move(what)}); });
}

void Agent::handle_events() {
    if (std::exchange(handles_events_, true)) return;  // an action raises an event: it comes after this one
    while (!events_.empty() && life_ == Life::kAlive) {
        const agent::Event event = std::move(events_.front());
        events_.pop_front();
        if (const auto* finished = std::get_if<agent::JobFinished>(&event.what)) facts_.verdict = finished->verdict;
        const auto* lost = std::get_if<agent::DaemonLost>(&event.what);
        const bool is_refused = lost != nullptr && lost->why.find("rejects this node") != std::string::npos;
        if (is_refused) facts_.refused = lost->why;
        if (lost != nullptr && !is_refused && link_.welcomed) world_.gave_up(*this);
        worker_group::Step taken = worker_group::step(std::move(group_), event);
        group_ = std::move(taken.next);
        const auto* notified = std::get_if<agent::NotifyReceived>(&event.what);
        if (notified != nullptr && group_.newest_forwarded == notified->number)
            facts_.notified.insert(notified->number);
        for (const agent::Action& action : taken.actions)
            std::visit([this](const auto& what) { perform(what); }, action);
        arm(group_timer_, worker_group::next_deadline(group_), &Agent::look_at_group);
    }
    handles_events_ = false;
}

void Agent::to_link(link::Happening happening) {
    link::Step taken = link::step(std::move(link_), {world_.time.now(), std::move(happening)});
    link_ = std::move(taken.next);
    for (const link::Action& action : taken.actions) std::visit([this](const auto& what) { perform(what); }, action);
    arm(link_timer_, link::next_deadline(link_), &Agent::look_at_link);
}

void Agent::arm(Timer& timer, const std::optional<TimePoint>& due, void (Agent::*look)()) {
    if (!due || (timer.planned && *timer.planned <= *due)) return;  // an early look does no harm
    timer.planned = due;
    world_.time.at(*due, [this, &timer, look, number = ++timer.number] {
        if (number != timer.number) return;
        timer.planned.reset();
        (this->*look)();
    });
}

void Agent::look_at_link() {
    if (life_ != Life::kAlive || paused_) return;
    const auto due = link::next_deadline(link_);
    if (!due || *due > world_.time.now()) return arm(link_timer_, due, &Agent::look_at_link);
    input([this] { to_link(link::Tick{}); });
}

void Agent::look_at_group() {
    if (life_ != Life::kAlive || paused_) return;
    const auto due = worker_group::next_deadline(group_);
    if (!due || *due > world_.time.now()) return arm(group_timer_, due, &Agent::look_at_group);
    raise(agent::Tick{});
}

// ---- the connection

void Agent::perform(const link::Dial& dial) {
    dial_plan_.emplace(dial.deadline, dial.pace);
    dial_again();
}

void Agent::dial_again() {
    if (link_.phase == link::Phase::kEnded) return;
    const ConnectionId id = world_.network.dial(this->id());
    dialing_ = id;
    world_.dialed(*this, id);
    world_.time.after(dial_plan_->begin_try(world_.time.now()), [this, id] {
        input([this, id] {
            if (dialing_ == id) dial_failed({Errc::kTimeout, "timed out"});
        });
    });
}

void Agent::dial_failed(Error error) {
    world_.network.give_up_dial(*std::exchange(dialing_, std::nullopt));
    switch (dial_plan_->failed(error, world_.time.now())) {
        case client::DialPlan::Next::kTryAgain:
            return world_.time.after(dial_plan_->next_pause(), [this] { input([this] { dial_again(); }); });
        case client::DialPlan::Next::kGiveUp:
        case client::DialPlan::Next::kForeign:
            to_link(link::DialFailed{{error.code == Errc::kTimeout ? Errc::kTimeout : Errc::kUnreachable,
                                      "cannot reach the rendezvous daemon"}});
    }
}

void Agent::dial_answered(ConnectionId id, bool accepted) {
    input([this, id, accepted] {
        if (dialing_ != id) return;
        if (!accepted)
            return dial_failed({make_error_code(boost::system::errc::connection_refused), "connection refused"});
        dialing_.reset();
        connection_ = id;
        to_link(link::Connected{});
    });
}

void Agent::perform(const link::Send& send) {
    if (connection_) world_.network.to_daemon(*connection_, send.message);
}

/// The link hears of the end of the connection next.
void Agent::perform(const link::Reset&) {
    if (!connection_) return;
    const ConnectionId id = *std::exchange(connection_, std::nullopt);
    world_.network.abandon(id);
    world_.time.after(0ms, [this] { input([this] { to_link(link::ConnectionEnded{link_.daemon + ": reset"}); }); });
}

void Agent::perform(const link::Raise& raised) { events_.push_back({world_.time.now(), raised.event}); }

void Agent::receive(ConnectionId id, const std::optional<DaemonMessage>& message) {
    input([this, id, message] {
        if (connection_ != id) return;
        if (message) return to_link(link::Received{*message});
        connection_.reset();
        to_link(link::ConnectionEnded{link_.daemon + ": closed"});
    });
}

void Agent::try_send(AgentMessage message) {
    if (link::can_send_now(link_)) perform(link::Send{std::move(message)});
}

/// No other connection follows, also where this one was being dialled: the daemon hears nothing more.
void Agent::close_connection() {
    to_link(link::Closed{});
    world_.network.disturb(id(), TimePoint::max());
    if (connection_) world_.network.close_by_agent(*std::exchange(connection_, std::nullopt));
}

// ---- the workers

void Agent::perform(const agent::StartWorkers& action) {
    if (const auto older = workers_.group())
        world_.mistake(fmt::format("{} starts generation {} while {} runs", id(), number(action.assignment.generation),
                                   number(*older)));
    to_link(link::GroupBegun{action.assignment.generation});
    workers_.start(action.assignment);
    if (world_.dice.percent(luck_.stall_percent)) plan_stalls();
}

void Agent::perform(const agent::FreezeGroup&) {
    if (workers_.group()) ++facts_.freezes;
    workers_.set_frozen(true);
}

void Agent::perform(const agent::ForwardSignal& action) {
    try_send(Notify{.generation = action.generation, .signal = action.signal, .known = action.known});
}

/// Workers that wait for the step have begun one call more when they get another notice.
void Agent::perform(const agent::GiveNotice& action) {
    const auto calls = static_cast<std::uint64_t>(world_.dice.between(0, 1'000));
    const Generation generation = action.notice.generation;
    const auto [first, is_first] = facts_.calls.emplace(generation, calls);
    if (!is_news(action.notice))
        world_.mistake(fmt::format("{} gives notice twice in generation {}", id(), number(generation)));
    to_link(link::Reported{StepsTaken{generation, is_first ? calls : first->second + 1}});
    workers_.give_notice();
}

bool Agent::is_news(const Preempt& notice) {
    const bool is_first = !newest_notice_ || newest_notice_->generation != notice.generation;
    if (is_first) notice_deadline_ = TimePoint::max();
    const TimePoint deadline = notice.time_left ? world_.time.now() + *notice.time_left : TimePoint::max();
    const bool is_earlier = notice.time_left && deadline < notice_deadline_;
    const bool is_news = is_first || newest_notice_->reason != notice.reason || is_earlier;
    notice_deadline_ = std::min(notice_deadline_, deadline);
    newest_notice_ = notice;
    return is_news;
}

void Agent::perform(const agent::NotifyWorkers& action) {
    if (action.signal == SIGUSR1) workers_.notify();
}

/// Workers that had made as many calls wait in the next one at the latest.
void Agent::perform(const agent::SetStop& action) {
    const Generation generation = group_.generation;
    const auto calls = facts_.calls.find(generation);
    const bool passed = calls == facts_.calls.end() || calls->second >= action.call;
    if (passed || facts_.stops.emplace(generation, action.call).first->second != action.call)
        world_.mistake(fmt::format("the workers of {} cannot stop in call {}", id(), action.call));
    constexpr std::uint64_t kMostCalls = 2'000;
    workers_.agree(action.call < kMostCalls);
}

void Agent::perform(const agent::DropConnection&) { close_connection(); }

void Agent::perform(const agent::ReportFailure& action) {
    FailureReport failure;
    failure.host = link_.join.host;
    failure.local_rank = action.rank;
    failure.rank = Rank{group_.rank_base + number(action.rank)};
    failure.status = action.status;
    failure.message = action.why;
    if (action.why.empty()) failure.pid = 100;
    if (link_.join.records) failure.activity = "in #1 barrier of group 'world' for 0.3 s";
    to_link(link::Reported{WorkerFailed{action.generation, std::move(failure)}});
}

/// Plans when the agent looks for stalls, and finds one: one worker after the other, or many at once.
void Agent::plan_stalls() {
    const bool burst = world_.dice.percent(20);
    const int checks = burst ? world_.dice.between(20, 60) : world_.dice.between(1, 3);
    const milliseconds first = world_.dice.between(0ms, luck_.work);
    for (int i = 0; i < checks; ++i)
        world_.time.after(burst ? first : world_.dice.between(0ms, luck_.work),
                          [this] { raise(agent::StallCheckDue{}); });
}

void Agent::perform(const agent::CheckForStalls& action) {
    if (action.running.empty()) return;
    Stalled stalled{group_.generation, Rank{group_.rank_base + number(*action.running.begin())}, "world", 1, 0, 30s};
    stalled.timed_out = world_.dice.percent(30);
    try_send(stalled);
}

/// Most records are read soon; some when the daemon waits no longer, or never.
void Agent::perform(const agent::SendRecord& action) {
    const bool is_first = action.last || number(action.rank) == 0;
    if (is_first && world_.dice.percent(5)) return;
    const milliseconds delay =
        is_first && world_.dice.percent(10) ? world_.dice.between(500ms, 5'000ms) : world_.dice.between(0ms, 20ms);
    world_.time.after(delay, [this, action] {
        input([this, action] {
            const Rank rank{group_.rank_base + number(action.rank)};
            try_send(RecordReply{action.request.generation, action.request.request, action.last,
                                 random_record(world_.dice, rank, link_.join.host)});
            if (!action.last) events_.push_back({world_.time.now(), agent::RecordSent{action.request, action.rank}});
        });
    });
}

void Agent::perform(const agent::Finish& action) {
    if (action.processes_left) world_.mistake(id() + " ends although processes are left");
    close_connection();
    life_ = Life::kExited;
}

// ---- what happens to the node

void Agent::signal(int number) { raise(agent::StopSignal{number}); }

void Agent::notify() {
    if (workers_.work()) raise(agent::NotifySignal{SIGUSR1});
}

void Agent::near_time_limit() {
    if (life_ != Life::kAlive || link_.phase == link::Phase::kIdle) return;
    facts_.time_limit_at = world_.time.now();
    raise(agent::TimeLimitNear{"the job's time limit"});
}

void Agent::suspend(milliseconds time) {
    raise(agent::Suspended{});
    world_.time.after(time, [this] { raise(agent::Continued{}); });
}

void Agent::kill(Kill how) {
    if (life_ != Life::kAlive) return;
    if (how == Kill::kGuard) return raise(agent::GuardLost{});
    life_ = Life::kKilled;
    if (how == Kill::kHost) world_.network.power_off(id());
    if (connection_ && how == Kill::kAgentUnread) world_.network.reset_by_agent(*connection_);
    if (connection_) world_.network.close_by_agent(*connection_);
    if (how == Kill::kHost) return workers_.end_all();
    world_.time.after(world_.dice.between(0ms, 300ms), [this] { workers_.end_all(); });
}

}  // namespace ddprun::sim

#include "tests/sim/agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/exit_codes.hpp"
#include "tests/sim/flight_records.hpp"

namespace ddprun::sim {
namespace {

using namespace protocol;

constexpr milliseconds kHeartbeat = 500ms;
constexpr milliseconds kSilence = 3'000ms;      // before the first Welcome
constexpr milliseconds kGiveUp = 60'000ms;      // without any daemon
constexpr milliseconds kPartingWait = 5'000ms;  // for the verdict, after a signal

}  // namespace

Agent::Agent(Join greeting, Luck luck, World world)
    : greeting_(std::move(greeting)), luck_(luck), world_(std::move(world)), connect_at_(world_.time.now()) {}

void Agent::start() {
    connected_at_ = connect_at_ = world_.time.now();
    tick();
}

void Agent::plan_tick() {
    world_.time.after(100ms, [this, number = ++ticks_planned_] {
        if (number == ticks_planned_ && !paused_) tick();
    });
}

bool Agent::rarely(int percent) { return world_.dice.between(1, 100 * luck_.rarity) <= percent; }

void Agent::pause(milliseconds time) {
    const bool started = ticks_planned_ > 0;
    if (life_ != Life::kAlive || paused_ || !started) return;
    paused_ = true;
    paused_until_ = world_.time.now() + time;
    world_.network.disturb(id(), paused_until_);
    world_.time.at(paused_until_, [this] { resume(); });
}

/// Looks at its lease before anything that has come in the meantime.
void Agent::resume() {
    paused_ = false;
    tick();
}

void Agent::tick() {
    if (life_ != Life::kAlive) return;
    const TimePoint now = world_.time.now();
    if (now >= exit_at_) return exit();
    if (connection_ && !welcomed_ && now - connected_at_ > kSilence) drop();
    if (known_to_daemon_) check_lease();
    if (life_ != Life::kAlive) return;
    if (!known_to_daemon_ && !connection_ && now - connected_at_ > kGiveUp) return exit();
    if (!connection_ && now >= connect_at_) connect();
    if (welcomed_ && now - sent_at_ >= kHeartbeat) {
        sent_at_ = now;
        world_.network.to_daemon(*connection_, lease_.next_heartbeat(now));
    }
    plan_tick();
}

/// Resets the connection, which brings nothing any more. The daemon may not notice.
void Agent::drop() {
    world_.network.abandon(*connection_);
    lost_connection();
}

void Agent::check_lease() {
    const TimePoint now = world_.time.now();
    if (facts_.verdict) return;
    if (!frozen_ && now >= lease_.ends()) {
        frozen_ = true;
        ++facts_.freezes;
        if (connection_) drop();
    }
    if (life_ != Life::kAlive || now < lease_.held_until()) return;
    if (running_) kill_workers();
    if (life_ == Life::kAlive && now >= lease_.given_up_at()) exit();
}

void Agent::after_work(milliseconds delay, Generation generation, std::function<void()> what) {
    world_.time.after(delay, [this, generation, what = std::move(what)] {
        if (life_ != Life::kAlive || running_ != generation || stopping_) return;
        if (paused_)
            return world_.time.at(paused_until_, [this, generation, what] { after_work(0ms, generation, what); });
        if (frozen_) return after_work(100ms, generation, what);
        what();
    });
}

void Agent::connect() {
    connect_at_ = world_.time.now() + world_.dice.between(50ms, 900ms);
    if (!world_.daemon_listens()) return;
    connection_ = world_.network.connect(id());
    welcomed_ = false;
    connected_at_ = world_.time.now();
    world_.connected(*this, *connection_);
    lease_.join_sent(world_.time.now());
    world_.network.to_daemon(*connection_, greeting_);
}

void Agent::lost_connection() {
    connection_.reset();
    welcomed_ = false;
    if (leaving_ && !running_) return exit();  // it has nothing left to do
    lease_.connection_ended(world_.time.now());
    connect_at_ =
        world_.time.now() + world_.dice.between(0ms, world_.dice.percent(luck_.slow_percent) ? 1'500ms : 100ms);
}

void Agent::receive(ConnectionId id, const std::optional<DaemonMessage>& message) {
    if (life_ != Life::kAlive || connection_ != id) return;
    if (paused_) return world_.time.at(paused_until_, [this, id, message] { receive(id, message); });
    if (!message) return lost_connection();
    if (const auto* heartbeat = std::get_if<Heartbeat>(&*message); heartbeat != nullptr) {
        lease_.heard(*heartbeat);
    } else if (const auto* welcome = std::get_if<Welcome>(&*message); welcome != nullptr) {
        lease_.welcomed(*welcome);
        if (known_to_daemon_ && world_.time.now() >= lease_.ends()) return drop();
        welcomed_ = known_to_daemon_ = true;
        greeting_.session = welcome->session;
        frozen_ = false;
        if (welcome->lost && running_) kill_workers();
        if (leaving_) world_.network.to_daemon(id, Leave{*leaving_});
        for (const AgentMessage& report : reports_) world_.network.to_daemon(id, report);
    } else if (const auto* assignment = std::get_if<Assignment>(&*message)) {
        begin(*assignment);
    } else if (const auto* request = std::get_if<RequestRecords>(&*message)) {
        answer(*request);
    } else if (const auto* notify = std::get_if<Notify>(&*message)) {
        // Those that it has are repeated after a reconnect.
        if (notify->generation == running_) facts_.notified.insert(notify->number);
    } else if (const auto* abort = std::get_if<Abort>(&*message)) {
        answer_abort(abort->generation);
    } else if (const auto* finished = std::get_if<Finished>(&*message)) {
        facts_.verdict = finished->verdict;
        if (running_)
            stop_workers();
        else
            exit();
    } else if (const auto* rejected = std::get_if<Rejected>(&*message)) {
        // Its own older connection may not have ended yet for the daemon; then trying again helps.
        if (rejected->try_again) return;
        facts_.refused = rejected->reason;
        if (running_)
            stop_workers();
        else
            exit();
    }
}

void Agent::begin(const Assignment& assignment) {
    if (assignment.generation <= newest_ || leaving_ || facts_.verdict) return;  // repeated after a reconnect
    if (running_)
        world_.mistake(
            fmt::format("{} got generation {} while {} runs", id(), number(assignment.generation), number(*running_)));
    newest_ = assignment.generation;
    rank_base_ = assignment.rank_base;
    running_ = newest_;
    stopping_ = false;
    reports_.clear();
    deaf_ = rarely(luck_.deaf_percent);
    const Generation generation = newest_;
    if (world_.dice.percent(luck_.stall_percent)) plan_stalls(generation);
    if (rarely(luck_.failure_percent)) {
        after_work(world_.dice.between(0ms, luck_.work), generation, [this] { fail(); });
        return;
    }
    after_work(luck_.work + world_.dice.between(0ms, 300ms), generation, [this, generation] {
        running_.reset();
        facts_.succeeded = generation;
        facts_.succeeded_at = world_.time.now();
        report(GroupSucceeded{generation});
    });
}

/// Several reports: a burst of one moment, or one after the other.
void Agent::plan_stalls(Generation generation) {
    const int reports = world_.dice.between(1, 10);
    const bool burst = world_.dice.percent(30);
    const milliseconds first = world_.dice.between(0ms, luck_.work);
    for (int i = 0; i < reports; ++i)
        world_.time.after(burst ? first : world_.dice.between(0ms, luck_.work),
                          [this, generation] { report_stall(generation); });
}

void Agent::report_stall(Generation generation) {
    if (life_ != Life::kAlive || paused_ || !welcomed_ || running_ != generation) return;
    Stalled stalled{generation, Rank{rank_base_}, "world", 1, 0, 30s};
    stalled.timed_out = world_.dice.percent(30);
    world_.network.to_daemon(*connection_, stalled);
}

/// Most agents answer soon; some answer when the daemon waits no longer, or never. The daemon may ask about workers
/// that have ended since.
void Agent::answer(const RequestRecords& request) {
    if (world_.dice.percent(5)) return;
    const milliseconds delay =
        world_.dice.percent(10) ? world_.dice.between(500ms, 5'000ms) : world_.dice.between(0ms, 100ms);
    world_.time.after(delay, [this, request] {
        if (life_ != Life::kAlive || paused_ || !welcomed_) return;
        for (int local = 0; local < slots_of(greeting_); ++local) {
            const Rank rank{rank_base_ + local};
            if (request.rank && *request.rank != rank) continue;
            const bool last = request.rank || local + 1 == slots_of(greeting_);
            world_.network.to_daemon(*connection_, RecordReply{request.generation, request.request, last,
                                                               random_record(world_.dice, rank, greeting_.host)});
        }
    });
}

void Agent::fail() {
    if (life_ != Life::kAlive || !running_ || stopping_ || frozen_) return;
    ++facts_.failures;
    worker_fails(*running_, world_.dice.percent(luck_.fatal_percent) ? exit_code::kDoNotRequeue : 3);
}

void Agent::peer_vanished(Generation generation) {
    if (paused_) return world_.time.at(paused_until_, [this, generation] { peer_vanished(generation); });
    if (life_ == Life::kAlive && running_ == generation && !stopping_ && !frozen_) worker_fails(generation, 1);
}

void Agent::worker_fails(Generation generation, int exit_code) {
    FailureReport failure;
    failure.host = greeting_.host;
    failure.local_rank = LocalRank{world_.dice.between(0, slots_of(greeting_) - 1)};
    failure.rank = Rank{rank_base_ + number(failure.local_rank)};
    failure.pid = 100;
    if (greeting_.records) failure.activity = "in #1 barrier of group 'world' for 0.3 s";
    failure.status.number = exit_code;
    report(WorkerFailed{generation, std::move(failure)});
    stop_workers();
}

/// Takes a while, as workers with a grace do; workers that had just exited end at once.
void Agent::stop_workers() {
    if (frozen_) return kill_workers();
    if (std::exchange(stopping_, true)) return;
    if (rarely(luck_.stuck_percent)) return get_stuck();
    world_.time.after(world_.dice.percent(20) ? world_.dice.between(500ms, 4'000ms) : world_.dice.between(0ms, 100ms),
                      [this, generation = *running_] {
                          if (life_ == Life::kAlive && running_ == generation) workers_ended();
                      });
}

/// A dead file system, or a driver: longer than the daemon waits for their end.
void Agent::get_stuck() {
    ++facts_.stuck;
    stuck_ = true;
    world_.time.after(world_.dice.between(10'000ms, 40'000ms), [this, generation = *running_] {
        stuck_ = false;
        if (life_ == Life::kAlive && running_ == generation) workers_ended();
    });
}

/// None of them executes another instruction.
void Agent::kill_workers() {
    if (stuck_) return;
    stopping_ = frozen_ = true;
    world_.time.after(world_.dice.between(0ms, 50ms), [this, generation = *running_] {
        if (life_ == Life::kAlive && running_ == generation) workers_ended();
    });
}

void Agent::workers_ended() {
    if (paused_) {
        return world_.time.at(paused_until_, [this, generation = *running_] {
            if (life_ == Life::kAlive && running_ == generation) workers_ended();
        });
    }
    const Generation generation = *running_;
    running_.reset();
    if (welcomed_) frozen_ = false;
    world_.workers_vanished(id(), generation);
    report(GroupStopped{generation});
    if (facts_.verdict || !facts_.refused.empty()) return exit();
    if (leaving_) exit_at_ = world_.time.now() + kPartingWait;
}

void Agent::answer_abort(Generation generation) {
    const bool is_deaf = running_ == generation && deaf_;  // a bug: only the end of its lease stops them
    if (is_deaf) return;
    if (running_ == generation) return stop_workers();
    world_.network.to_daemon(*connection_, GroupStopped{generation});
}

void Agent::report(AgentMessage message) {
    if (welcomed_) world_.network.to_daemon(*connection_, message);
    reports_.push_back(std::move(message));
}

void Agent::signal(int number) {
    if (paused_) return world_.time.at(paused_until_, [this, number] { signal(number); });
    if (life_ != Life::kAlive || leaving_) return;
    leaving_ = number;
    if (welcomed_) world_.network.to_daemon(*connection_, Leave{number});
    if (running_)
        stop_workers();
    else
        exit_at_ = world_.time.now() + kPartingWait;
}

void Agent::notify() {
    if (life_ != Life::kAlive || paused_ || !welcomed_ || !running_ || stopping_) return;
    world_.network.to_daemon(*connection_, Notify{*running_, SIGUSR1});
}

void Agent::kill(bool power_off) {
    if (life_ != Life::kAlive) return;
    life_ = Life::kKilled;
    if (power_off) world_.network.power_off(id());
    if (connection_) world_.network.close_by_agent(*connection_);
    if (!running_) return;
    const auto die = [this] {
        const Generation generation = *running_;
        running_.reset();
        world_.workers_vanished(id(), generation);
    };
    if (power_off) return die();
    world_.time.after(world_.dice.between(0ms, 300ms), die);
}

void Agent::exit() {
    life_ = Life::kExited;
    if (connection_) world_.network.close_by_agent(*connection_);
}

}  // namespace ddprun::sim

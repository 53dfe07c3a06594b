#include "tests/sim/workers.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/exit_codes.hpp"

namespace ddprun::sim {
namespace {

ExitStatus exited(int code) { return {ExitStatus::Kind::kExited, code, false}; }
ExitStatus ended_by(int signal) { return {ExitStatus::Kind::kSignaled, signal, false}; }

}  // namespace

Workers::Workers(int slots, Luck luck, World world)
    : slots_(slots), luck_(luck), world_(std::move(world)), has_control_group_(world_.dice.percent(50)) {}

// ---- what the agent does with them

void Workers::start(const protocol::Assignment& assignment) {
    ++starts_;
    group_ = assignment.generation;
    facts_.started_at = world_.time.now();
    processes_.clear();
    all_started_ = has_vanished_ = killed_ = stopped_ = frozen_ = false;
    any_preempted_ = stops_ = waits_ = has_agreed_ = false;
    all_succeeded_ = true;
    signal_ = 0;
    stuck_until_ = {};
    stray_ = rarely(luck_.stray_percent);
    stubborn_ = rarely(luck_.stubborn_percent);
    start_more(LocalRank{0});
}

void Workers::start_more(LocalRank next) {
    const bool sliced = slots_ > 1 && number(next) == 0 && world_.dice.percent(luck_.sliced_percent);
    const int until = sliced ? world_.dice.between(1, slots_ - 1) : slots_;
    if (number(next) == 0 && rarely(luck_.spawn_percent)) return fail_to_start(until);
    processes_.resize(static_cast<std::size_t>(until));
    if (!sliced) {
        all_started_ = true;
        return plan_work();
    }
    world_.time.after(world_.dice.between(0ms, 100ms), [this, number = starts_, until] {
        if (number == starts_ && group_) world_.happened(agent::StartPaused{LocalRank{until}});
    });
}

/// Cannot start the last of the first `count` workers.
void Workers::fail_to_start(int count) {
    processes_.resize(static_cast<std::size_t>(count) - 1);
    all_started_ = true;
    all_succeeded_ = false;
    ++facts_.failures;
    namespace errc = boost::system::errc;
    const auto cause = world_.dice.percent(50) ? errc::no_such_file_or_directory : errc::resource_unavailable_try_again;
    world_.happened(
        agent::SpawnFailed{LocalRank{count - 1}, {errc::make_error_code(cause), "cannot start the program"}});
    reap_if_empty();
}

void Workers::end_start() {
    all_started_ = true;
    all_succeeded_ = false;
    reap_if_empty();
}

void Workers::signal(int number) {
    if (!group_) return;
    const bool is_first = std::exchange(signal_, number) == 0;
    if (is_first && std::ranges::any_of(processes_, &Process::alive) &&
        rarely(luck_.stuck_percent)) {  // by a dead file system, or a driver
        ++facts_.stuck;
        stuck_until_ = world_.time.now() + world_.dice.between(10'000ms, 40'000ms);
    }
    if (number == SIGKILL) {
        killed_ = true;
        for (Process& process : processes_) process.signaled = true;
        for (std::size_t i = 0; i < processes_.size(); ++i)
            end_later(i, world_.dice.between(0ms, 50ms), ended_by(SIGKILL));
        return end_stray_later(world_.dice.between(0ms, 50ms));
    }
    bool spared = false;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (!processes_[i].alive) continue;
        if (processes_[i].failing && !processes_[i].signaled)
            spared = true;
        else
            terminate(i);
    }
    if (!stubborn_) end_stray_later(world_.dice.between(0ms, 1'000ms));
    if (spared) world_.happened(agent::WorkersSpared{});
}

void Workers::signal_spared() {
    for (std::size_t i = 0; i < processes_.size(); ++i)
        if (processes_[i].alive && !processes_[i].signaled) terminate(i);
}

void Workers::notify() {
    if (luck_.at_notice != AtNotice::kStop) return;
    stops_ = true;
    stop_after_notice();
}

void Workers::give_notice() {
    if (luck_.at_notice == AtNotice::kStop) return notify();
    waits_ = luck_.at_notice == AtNotice::kAgree && !has_agreed_;
}

void Workers::agree(bool reached) {
    if (luck_.at_notice != AtNotice::kAgree) return;
    has_agreed_ = true;
    waits_ = false;
    stops_ = reached;
    stop_after_notice();
}

/// Each ends its step, and saves.
void Workers::stop_after_notice() {
    if (!stops_) return;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (std::exchange(processes_[i].stopping, true)) continue;
        const bool is_done = world_.dice.percent(luck_.done_percent);
        after_work(world_.dice.between(0ms, 3'000ms), i,
                   [this, i, is_done] { end(i, exited(is_done ? 0 : exit_code::kPreempted)); });
    }
}

/// Takes a while, as workers with a grace do.
void Workers::terminate(std::size_t i) {
    processes_[i].signaled = true;
    if (stubborn_) return;
    const milliseconds delay =
        world_.dice.percent(20) ? world_.dice.between(500ms, 4'000ms) : world_.dice.between(0ms, 100ms);
    end_later(i, delay, world_.dice.percent(50) ? ended_by(SIGTERM) : exited(world_.dice.percent(50) ? 0 : 1));
}

// ---- what else happens to them

void Workers::plan_work() {
    stop_after_notice();
    if (rarely(luck_.failure_percent)) {
        after_work(world_.dice.between(0ms, luck_.work), 0, [this] { fail(); });
        return;
    }
    for (std::size_t i = 0; i < processes_.size(); ++i)
        after_work(luck_.work + world_.dice.between(0ms, 300ms), i, [this, i] { finish(i); });
}

void Workers::finish(std::size_t i) {
    if (waits_) return after_work(100ms, i, [this, i] { finish(i); });
    end(i, exited(0));
}

void Workers::fail() {
    if (!work() || stand_still()) return;
    ++facts_.failures;
    if (world_.dice.percent(luck_.fatal_percent)) return begin_to_fail(exited(exit_code::kDoNotRequeue));
    begin_to_fail(world_.dice.percent(20) ? ended_by(SIGKILL) : exited(3));
}

void Workers::peer_vanished(Generation generation) {
    if (group_ != generation || !work()) return;
    if (stand_still()) return world_.time.after(100ms, [this, generation] { peer_vanished(generation); });
    begin_to_fail(exited(1));
}

/// A worker has an exception, or the kernel kills it. It ends soon.
void Workers::begin_to_fail(ExitStatus status) {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < processes_.size(); ++i)
        if (processes_[i].alive && !processes_[i].failing && !processes_[i].signaled) candidates.push_back(i);
    if (candidates.empty()) return;
    const std::size_t i = candidates[static_cast<std::size_t>(world_.dice.between(0, int(candidates.size()) - 1))];
    processes_[i].failing = true;
    end_later(i, world_.dice.percent(10) ? world_.dice.between(100ms, 1'500ms) : world_.dice.between(0ms, 20ms),
              status);
}

void Workers::end_all() {
    if (!group_) return;
    const Generation generation = *std::exchange(group_, std::nullopt);
    ++starts_;
    // Peers that wait fail because of one that vanishes, not because of one that has exited with 0.
    const bool any_alive = std::ranges::any_of(processes_, &Process::alive);
    processes_.clear();
    if (any_alive) world_.vanished(generation);
}

bool Workers::work() const {
    return group_ &&
           std::ranges::any_of(processes_, [](const Process& p) { return p.alive && !p.failing && !p.signaled; });
}

void Workers::after_work(milliseconds delay, std::size_t i, std::function<void()> what) {
    world_.time.after(delay, [this, number = starts_, i, what = std::move(what)] {
        if (number != starts_ || !processes_[i].alive || processes_[i].signaled) return;
        if (stand_still()) return after_work(100ms, i, what);
        what();
    });
}

/// A process that stands still ends when it goes on, unless it gets SIGKILL.
void Workers::end_later(std::size_t i, milliseconds delay, ExitStatus status) {
    world_.time.after(delay, [this, number = starts_, i, status] {
        if (number != starts_ || !processes_[i].alive) return;
        const bool by_kill = killed_ && status.kind == ExitStatus::Kind::kSignaled && status.number == SIGKILL;
        if (is_stuck() || ((stopped_ || frozen_) && !by_kill)) return end_later(i, 100ms, status);
        end(i, status);
    });
}

void Workers::end_stray_later(milliseconds delay) {
    if (!stray_) return;
    world_.time.after(delay, [this, number = starts_] {
        if (number != starts_ || !stray_) return;
        if (is_stuck() || ((stopped_ || frozen_) && !killed_)) return end_stray_later(100ms);
        stray_ = false;
        reap_if_empty();
    });
}

void Workers::end(std::size_t i, ExitStatus status) {
    processes_[i].alive = false;
    const bool is_preempted = stops_ && status == exited(exit_code::kPreempted);
    const bool ended_well = status.success() || is_preempted;
    all_succeeded_ = all_succeeded_ && ended_well;
    any_preempted_ = any_preempted_ || is_preempted;
    if (is_preempted) ++facts_.preemptions;
    const Generation generation = *group_;
    const bool by_itself = !processes_[i].signaled;
    const bool last = all_started_ && std::ranges::none_of(processes_, &Process::alive);
    if (last && all_succeeded_ && signal_ == 0) {
        facts_.succeeded = generation;
        facts_.succeeded_at = world_.time.now();
        if (any_preempted_) facts_.preempted = generation;
    }
    const bool vanished = !ended_well && !std::exchange(has_vanished_, true);
    world_.happened(agent::WorkerExited{LocalRank{static_cast<int>(i)}, status, by_itself});
    reap_if_empty();
    if (vanished) world_.vanished(generation);
}

void Workers::reap_if_empty() {
    if (!group_ || !all_started_ || stray_ || std::ranges::any_of(processes_, &Process::alive)) return;
    group_.reset();
    world_.happened(agent::GroupReaped{});
}

}  // namespace ddprun::sim

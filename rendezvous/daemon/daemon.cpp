#include "rendezvous/daemon/daemon.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/overloaded.hpp"
#include "common/text/escape.hpp"
#include "rendezvous/daemon/report.hpp"
#include "rendezvous/transport/completion.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using coordinator::kTickInterval;

bool have_one_address(const DaemonConfig& config) {
    return !config.security.insecure && !config.store_address && !config.bind.is_unspecified();
}

Result<std::shared_ptr<Daemon>> Daemon::listen(const asio::any_io_executor& executor, DaemonConfig config) {
    Result<ControlPort> port =
        ControlPort::listen(executor, config.bind, config.port, config.handshake_time, config.security);
    if (!port) return port.error();
    return std::shared_ptr<Daemon>(new Daemon(executor, std::move(*port), std::move(config)));
}

Daemon::Daemon(asio::any_io_executor executor, ControlPort port, DaemonConfig config)
    : executor_(std::move(executor)),
      config_(std::move(config)),
      decisions_(config_.job),
      connections_(executor_, config_.store_address),
      stores_(executor_, config_.store_address.value_or(config_.bind)),
      sessions_(executor_, std::move(port), connections_, decisions_, stores_, have_one_address(config_),
                config_.store_vouch, [this](DaemonHappening what) { handle(std::move(what)); }),
      tick_timer_(executor_) {}

awaitable<int> Daemon::run() {
    sessions_.start(weak_from_this());
    co_await tick();
    co_await connections_.close_all();
    stores_.close_all();
    co_return *exit_code_;
}

awaitable<void> Daemon::tick() {
    while (!exit_code_) {
        const TimePoint now = Clock::now();
        handle(coordinator::Tick{});
        connections_.end_idle_inspectors(now);
        sessions_.remind(now);
        if (exit_code_) co_return;
        tick_timer_.expires_at(now + kTickInterval);
        co_await tick_timer_.async_wait(transport::kTuple);
    }
}

void Daemon::end(int exit_code) {
    if (exit_code_) return;
    exit_code_ = exit_code;
    sessions_.close();
    tick_timer_.cancel();
}

void Daemon::stop(int signal) {
    if (!exit_code_) handle(coordinator::StopRequested{signal});
}

void Daemon::starter_ended() {
    if (!exit_code_) handle(coordinator::StarterEnded{});
}

void Daemon::no_more_nodes(std::string why) {
    if (!exit_code_) handle(coordinator::NoMoreNodes{std::move(why)});
}

// ---- the loop: asks Decisions about the job, and is the only place that performs what they decide

/// Handles an event that happens now, and everything that follows from it. No action calls back into this function.
void Daemon::handle(DaemonHappening what) {
    decisions_.add(std::move(what), Clock::now());
    while (const std::optional<DaemonStep> step = decisions_.next()) {
        log(*step);
        for (const DaemonAction& action : step->actions) perform(action);
    }
}

void Daemon::log(const DaemonStep& step) {
    if (!step.reason.empty() && step.reason != last_reason_) {
        spdlog::info("{}", log_line(step.reason));
        last_reason_ = step.reason;
    }
    if (!step.inquiry_reason.empty()) spdlog::debug("{}", log_line(step.inquiry_reason));
    const coordinator::State& job = decisions_.job();
    if (std::exchange(logged_generation_, job.group.generation) == job.group.generation) return;
    for (const std::string& line : group_table(job)) spdlog::info("{}", line);
}

void Daemon::perform(const DaemonAction& action) {
    std::visit(Overloaded{
                   [&](const coordinator::Send& a) { send(a); },
                   [&](const coordinator::Refuse& a) {
                       connections_.answer_asking(protocol::Rejected{a.reason, a.try_again, a.try_for});
                   },
                   [&](const coordinator::Reply& a) { connections_.answer_asking(a.answer); },
                   [&](const coordinator::OpenStore& a) { open_store(a.generation); },
                   [&](const coordinator::CloseStore& a) { stores_.close(a.generation); },
                   [&](const coordinator::Disconnect& a) { connections_.disconnect(a.node); },
                   [&](const coordinator::EndDaemon& a) { end(a.exit_code); },
                   [&](const diagnosis::ToAgent& a) { connections_.send(a.node, a.message); },
                   [&](const diagnosis::ToInspector& a) { connections_.send(a.inspector, a.message); },
                   [&](const diagnosis::Conclusion& a) { spdlog::info("{}", log_line(a.text)); },
               },
               action);
}

/// Sends the message. A Welcome answers the pending Join, and makes the Join's connection that of the node.
void Daemon::send(const coordinator::Send& action) {
    if (std::holds_alternative<protocol::Welcome>(action.message)) {
        connections_.admit(action.node);
        warn_of_exposure();
    }
    connections_.send(action.node, action.message);
}

/// Warns with the first agent: a daemon that stands by, or at a meeting point, may end without any.
void Daemon::warn_of_exposure() {
    if (std::exchange(exposure_reported_, true)) return;
    const std::string warning = exposure_warning(endpoint(), config_.store_address.value_or(endpoint().address()),
                                                 config_.security.insecure, have_one_address(config_));
    if (!warning.empty()) spdlog::warn("{}", warning);
}

void Daemon::open_store(Generation generation) {
    sessions_.end_accepting_for_old_stores();
    const Result<int> port = stores_.open(generation, sessions_.store_admission(), sessions_.store_screen(generation));
    if (port) {
        decisions_.add_follower(coordinator::StoreOpened{generation, *port});
    } else {
        decisions_.add_follower(coordinator::StoreFailed{generation, port.error().message});
    }
}

}  // namespace ddprun::daemon

#include "rendezvous/daemon/daemon.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "common/exit_codes.hpp"
#include "common/overloaded.hpp"
#include "common/system/exit_status.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"
#include "rendezvous/daemon/report.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using coordinator::kTickInterval;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

}  // namespace

Result<std::shared_ptr<Daemon>> Daemon::listen(const asio::any_io_executor& executor, DaemonConfig config) {
    Result<ControlPort> port = ControlPort::listen(executor, config.bind, config.port, config.handshake_time);
    if (!port) return port.error();
    return std::shared_ptr<Daemon>(new Daemon(executor, std::move(*port), std::move(config)));
}

Daemon::Daemon(asio::any_io_executor executor, ControlPort port, DaemonConfig config)
    : executor_(std::move(executor)),
      config_(std::move(config)),
      port_(std::move(port)),
      decisions_(config_.job),
      connections_(executor_),
      stores_(executor_, config_.bind),
      tick_timer_(executor_) {}

awaitable<int> Daemon::run() {
    spawn(accept_connections());
    co_await tick();
    port_.close();
    co_await connections_.close_all();
    stores_.close_all();
    co_return *exit_code_;
}

awaitable<void> Daemon::tick() {
    alone_since_ = Clock::now();
    while (!exit_code_) {
        const TimePoint now = Clock::now();
        handle(coordinator::Tick{});
        connections_.end_idle_inspectors(now);
        if (decisions_.job().verdict && !verdict_is_missed(now)) end(exit_code::kSuccess);
        if (!exit_code_ && deserted(now)) end(exit_code::kInfrastructure);
        if (exit_code_) co_return;
        tick_timer_.expires_at(now + kTickInterval);
        co_await tick_timer_.async_wait(kTuple);
    }
}

bool Daemon::deserted(TimePoint now) {
    if (connections_.has_agents()) alone_since_ = now;
    if (now - alone_since_ < config_.linger) return false;
    spdlog::info("no agent was connected for {}: the daemon ends", seconds_text(config_.linger));
    return true;
}

/// Returns whether a node that was disconnected when the job ended may still reconnect to get the verdict. A node that
/// got a signal does not: its agent ends by itself after its workers.
bool Daemon::verdict_is_missed(TimePoint now) const {
    return std::ranges::any_of(decisions_.job().nodes, [&](const auto& entry) {
        const coordinator::Node& node = entry.second;
        const bool has_left = node.leaving && !node.busy;
        return node.link == coordinator::Link::kDisconnected && !has_left && node.vanished_at <= finished_at_ &&
               now < node.vanished_at + config_.job.reconnect_grace;
    });
}

void Daemon::end(int exit_code) {
    if (exit_code_) return;
    exit_code_ = exit_code;
    tick_timer_.cancel();
}

void Daemon::stop(int signal) {
    if (exit_code_) return;
    if (decisions_.job().verdict) return end(exit_code::kSuccess);  // every connected agent has it
    protocol::Verdict verdict;
    verdict.outcome = protocol::Outcome::kStopped;
    verdict.exit_code = exit_code::kSignalBase + signal;
    verdict.reason = fmt::format("the rendezvous daemon was stopped by {}", signal_name(signal));
    spdlog::info("stopped by {}", signal_name(signal));
    connections_.send_to_all(protocol::Finished{verdict});
    end(verdict.exit_code);
}

// ---- the loop: the only place that decides, and the only one that acts

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
                       connections_.refuse_joining({a.reason, a.try_again});
                   },
                   [&](const coordinator::OpenStore& a) { open_store(a.generation); },
                   [&](const coordinator::CloseStore& a) { stores_.close(a.generation); },
                   [&](const coordinator::Disconnect& a) { connections_.disconnect(a.node); },
                   [&](const coordinator::FinishJob&) { finish_job(); },
                   [&](const diagnosis::ToAgent& a) { connections_.send(a.node, a.message); },
                   [&](const diagnosis::ToInspector& a) { connections_.send(a.inspector, a.message); },
                   [&](const diagnosis::Conclusion& a) { spdlog::info("{}", log_line(a.text)); },
               },
               action);
}

/// Sends the message. A Welcome answers the pending Join, and makes the Join's connection that of the node.
void Daemon::send(const coordinator::Send& action) {
    if (std::holds_alternative<protocol::Welcome>(action.message)) connections_.admit(action.node);
    connections_.send(action.node, action.message);
}

void Daemon::open_store(Generation generation) {
    const Result<int> port = stores_.open(generation);
    if (port) {
        decisions_.add_follower(coordinator::StoreOpened{generation, *port});
    } else {
        decisions_.add_follower(coordinator::StoreFailed{generation, port.error().message});
    }
}

void Daemon::finish_job() {
    finished_at_ = decisions_.job().now;
    if (!verdict_is_missed(finished_at_)) end(exit_code::kSuccess);  // else tick() does
}

}  // namespace ddprun::daemon

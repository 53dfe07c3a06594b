#include "rendezvous/daemon/daemon.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cassert>

#include "common/endpoint.hpp"
#include "common/exit_codes.hpp"
#include "common/exit_status.hpp"
#include "rendezvous/coordinator/messages_json.hpp"
#include "rendezvous/daemon/report.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using coordinator::kTickInterval;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

Error cannot_listen(const tcp::endpoint& wanted, const error_code& ec) {
    const std::string where = to_string(Endpoint{wanted.address().to_string(), wanted.port()});
    if (ec == asio::error::address_in_use) {
        return {Errc::kInUse,
                fmt::format("cannot listen on {}: the port is in use, perhaps by the ddprund of another job. End "
                            "that one, or choose another port (0: a free one).",
                            where)};
    }
    if (ec == boost::system::errc::address_not_available) {
        return {Errc::kSystem,
                fmt::format("cannot listen on {}: this host has no such address. Choose one that `ip address` "
                            "shows here.",
                            where)};
    }
    return {Errc::kSystem,
            fmt::format("cannot listen on {}: {}. Choose another address or port.", where, ec.message())};
}

bool is_refusal(const coordinator::Action& action) { return std::holds_alternative<coordinator::Refuse>(action); }

}  // namespace

Result<std::shared_ptr<Daemon>> Daemon::listen(const asio::any_io_executor& executor, DaemonConfig config) {
    const tcp::endpoint wanted(config.bind, config.port);
    tcp::acceptor acceptor(executor);
    error_code ec;
    acceptor.open(wanted.protocol(), ec);
    if (!ec) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);  // for a restart; two listeners still collide
    if (!ec && config.bind.is_v6()) acceptor.set_option(asio::ip::v6_only(false), ec);
    if (!ec) acceptor.bind(wanted, ec);
    if (!ec) acceptor.listen(tcp::acceptor::max_listen_connections, ec);
    if (ec) return cannot_listen(wanted, ec);
    return std::shared_ptr<Daemon>(new Daemon(std::move(acceptor), std::move(config)));
}

Daemon::Daemon(tcp::acceptor acceptor, DaemonConfig config)
    : acceptor_(std::move(acceptor)),
      config_(std::move(config)),
      endpoint_(acceptor_.local_endpoint()),
      state_(config_.job),
      tick_timer_(acceptor_.get_executor()),
      closed_(acceptor_.get_executor(), TimePoint::max()) {}

Daemon::~Daemon() = default;

awaitable<int> Daemon::run() {
    spawn(accept_connections());
    co_await tick();
    co_await say_goodbye();
    co_return *exit_code_;
}

awaitable<void> Daemon::tick() {
    alone_since_ = Clock::now();
    while (!exit_code_) {
        const TimePoint now = Clock::now();
        apply(coordinator::Tick{now});
        perform(inquiries_.tick(state_, now));
        drop_idle_inspectors(now);
        if (state_.verdict && !verdict_is_missed(now)) end(exit_code::kSuccess);
        if (!exit_code_ && deserted(now)) end(exit_code::kInfrastructure);
        if (exit_code_) co_return;
        tick_timer_.expires_at(now + kTickInterval);
        co_await tick_timer_.async_wait(kTuple);
    }
}

/// One that has had its answer for long and asks nothing is asleep or gone: it keeps the place of others.
void Daemon::drop_idle_inspectors(TimePoint now) {
    for (const auto& [id, inspector] : inspectors_) {
        if (now - inspector.asked >= kInspectorIdle) inspector.channel->abort();  // its coroutine erases it
    }
}

bool Daemon::deserted(TimePoint now) {
    if (!agents_.empty()) alone_since_ = now;
    if (now - alone_since_ < config_.linger) return false;
    spdlog::info("no agent was connected for {:g} s: the daemon ends",
                 std::chrono::duration<double>(config_.linger).count());
    return true;
}

/// Whether a node that was cut off for a moment when the job ended may still come back and ask.
bool Daemon::verdict_is_missed(TimePoint now) const {
    return std::ranges::any_of(state_.nodes, [&](const auto& entry) {
        const coordinator::Node& node = entry.second;
        return node.link == coordinator::Link::kDisconnected && node.vanished_at <= finished_at_ &&
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
    if (state_.verdict) return end(exit_code::kSuccess);  // all that are connected have heard it
    coordinator::Verdict verdict;
    verdict.outcome = coordinator::Outcome::kStopped;
    verdict.exit_code = exit_code::kSignalBase + signal;
    verdict.reason = fmt::format("the rendezvous daemon was told to end by {}", signal_name(signal));
    spdlog::info("told to end by {}", signal_name(signal));
    const std::string finished = coordinator::encode(coordinator::Finished{verdict});
    for (const auto& [node, channel] : agents_) channel->send(finished);
    end(verdict.exit_code);
}

// ---- the one place that decides, and what it asks for
// --------------------------------------------------------------------

void Daemon::apply(const coordinator::Event& event) {
    std::optional<coordinator::Event> current = event;
    while (current) {
        const Generation before = state_.group.generation;
        coordinator::Step step = coordinator::step(std::move(state_), *current);
        state_ = std::move(step.next);
        log_step(step.reason, before);
        const bool refused = std::ranges::any_of(step.actions, is_refusal);
        if (joining_ && !refused)
            agents_[std::get<coordinator::NodeMessage>(*current).node] = std::exchange(joining_, nullptr);
        for (const coordinator::Action& action : step.actions) {
            std::visit([this](const auto& what) { perform(what); }, action);
        }
        current = std::exchange(answer_, std::nullopt);
    }
}

void Daemon::log_step(const std::string& reason, Generation before) {
    if (!reason.empty() && reason != last_reason_) {
        spdlog::info("{}", printable(reason));
        last_reason_ = reason;
    }
    if (state_.group.generation == before) return;
    for (const std::string& line : group_table(state_)) spdlog::info("{}", line);
}

void Daemon::perform(const coordinator::Send& action) {
    ChannelPtr channel;
    if (const auto agent = agents_.find(action.node); agent != agents_.end()) channel = agent->second;
    if (!channel) return;  // its connection has just ended, and the coordinator is about to be told
    if (const auto* assignment = std::get_if<coordinator::Assignment>(&action.message)) {
        coordinator::Assignment addressed = *assignment;
        addressed.master_addr = channel->local_address().to_string();  // this node has reached us there
        channel->send(coordinator::encode(addressed));
    } else {
        channel->send(coordinator::encode(action.message));
    }
}

void Daemon::perform(const coordinator::Refuse& action) {
    assert(joining_);
    refuse(std::exchange(joining_, nullptr), {action.reason, action.try_again});
}

void Daemon::perform(const coordinator::OpenStore& action) {
    assert(!answer_);
    auto store = store::StoreServer::listen(acceptor_.get_executor(), config_.bind, 0);
    if (store) {
        const int port = (*store)->port();
        stores_[action.generation] = std::move(*store);
        answer_ = coordinator::StoreOpened{action.generation, port, Clock::now()};
    } else {
        answer_ = coordinator::StoreFailed{action.generation, store.error().message, Clock::now()};
    }
}

void Daemon::perform(const coordinator::CloseStore& action) { stores_.erase(action.generation); }

void Daemon::perform(const coordinator::Disconnect& action) {
    const auto agent = agents_.find(action.node);
    if (agent == agents_.end()) return;
    close_later(agent->second);
    agents_.erase(agent);
}

void Daemon::perform(const coordinator::FinishJob&) {
    finished_at_ = state_.now;
    if (!verdict_is_missed(finished_at_)) end(exit_code::kSuccess);  // else tick() does
}

void Daemon::perform(const InquiryActions& actions) {
    for (const InquiryAction& action : actions) {
        std::visit([this](const auto& what) { perform(what); }, action);
    }
}

void Daemon::perform(const ToAgent& action) {
    if (const auto agent = agents_.find(action.node); agent != agents_.end())
        agent->second->send(coordinator::encode(action.message));
}

void Daemon::perform(const ToInspector& action) {
    if (const auto inspector = inspectors_.find(action.inspector); inspector != inspectors_.end())
        inspector->second.channel->send(coordinator::encode(action.message));
}

void Daemon::perform(const Conclusion& action) { spdlog::info("{}", printable(action.text)); }

void Daemon::perform(const JudgingFailure& action) { apply(coordinator::Judging{action.generation, Clock::now()}); }

void Daemon::perform(const JudgedFailure& action) {
    apply(coordinator::Judged{action.generation, action.text, Clock::now(), action.dead, action.detail, action.hint,
                              action.blamed});
}

}  // namespace ddprun::daemon

#include "agent/daemon_link.hpp"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <exception>
#include <utility>
#include <variant>

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;

constexpr std::chrono::seconds kCloseTimeout{2};  // a daemon that does not answer must not hold up a finished node

/// Ends the program when a coroutine throws: that is a bug, and must not end a part of the program silently.
void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace

DaemonLink::DaemonLink(asio::io_context& io, AgentConfig& config, protocol::Join join, EventQueue& events)
    : io_(io),
      endpoint_(config.endpoint),
      security_(config.security),
      events_(events),
      timer_(io),
      standby_(std::move(config.standby)) {
    state_.daemon = fmt::format("the rendezvous daemon at {}", to_string(endpoint_));
    state_.join = std::move(join);
    state_.connect_timeout = config.connect_timeout;
}

bool DaemonLink::try_send(const protocol::AgentMessage& message) {
    if (!link::can_send_now(state_)) return false;
    client_->send(message);
    return true;
}

void DaemonLink::drop() {
    handle(link::Closed{});
    client_.reset();
}

asio::awaitable<void> DaemonLink::close() {
    if (has_ended()) co_return;
    handle(link::Closed{});
    if (!client_) co_return;
    asio::steady_timer limit(io_, kCloseTimeout);
    co_await (client_->close() || limit.async_wait(asio::use_awaitable));
}

/// Performs what link::step() decides.
void DaemonLink::handle(link::Happening what) {
    link::Step taken = link::step(std::move(state_), {Clock::now(), std::move(what)});
    state_ = std::move(taken.next);
    for (link::Action& action : taken.actions) std::visit([this](auto& performed) { perform(performed); }, action);
    arm_timer();
}

void DaemonLink::perform(const link::Dial& dial) { asio::co_spawn(io_, converse(dial), rethrow); }

void DaemonLink::arm_timer() {
    const auto due = link::next_deadline(state_);
    if (!due) {
        timer_.cancel();
        return;
    }
    timer_.expires_at(*due);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) handle(link::Tick{});
    });
}

asio::awaitable<void> DaemonLink::converse(link::Dial dial) {
    auto connected = co_await client::ControlClient::connect(endpoint_, dial.deadline, dial.pace, security_);
    if (has_ended()) co_return;
    if (!connected) {
        handle(link::DialFailed{connected.error()});
        co_return;
    }
    client_ = std::move(*connected);
    handle(link::Connected{});
    const std::string why = co_await listen();
    if (has_ended()) co_return;  // close() may still use the client
    client_.reset();
    handle(link::ConnectionEnded{why});
}

asio::awaitable<std::string> DaemonLink::listen() {
    while (!has_ended()) {
        auto received = co_await client_->receive();
        if (!received) co_return received.error().message;
        if (has_ended()) break;
        handle(link::Received{std::move(*received)});
    }
    co_return "";
}

}  // namespace ddprun::agent

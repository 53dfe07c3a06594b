#include "agent/daemon_link.hpp"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <utility>

#include "agent/output/text.hpp"
#include "common/overloaded.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;
using namespace coordinator;
using std::chrono::milliseconds;

constexpr milliseconds kGoodbye{2000};  // a daemon that does not answer must not keep a finished node

/// What other nodes had a part in (host names, messages), fit for a terminal.
std::string words_of(const std::string& reason) { return printable(reason, reason.size()); }

/// A coroutine that throws is a bug of ours: let it end the program instead of a silent part of it.
void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace

DaemonLink::DaemonLink(asio::io_context& io, Endpoint endpoint, Join join, milliseconds connect_timeout,
                       Callbacks callbacks)
    : io_(io),
      endpoint_(std::move(endpoint)),
      join_(std::move(join)),
      callbacks_(std::move(callbacks)),
      heartbeat_interval_(Welcome{}.heartbeat_interval),
      lost_after_(connect_timeout),
      timer_(io) {}

void DaemonLink::start() { asio::co_spawn(io_, converse(), rethrow); }

void DaemonLink::send(const AgentMessage& message) {
    if (client_ && !closed_) client_->send(message);
}

asio::awaitable<void> DaemonLink::close() {
    if (!client_ || closed_) co_return;
    closed_ = true;
    timer_.cancel();
    asio::steady_timer limit(io_, kGoodbye);
    co_await (client_->close() || limit.async_wait(asio::use_awaitable));
}

void DaemonLink::lose(std::string why) {
    if (!closed_) callbacks_.event(DaemonLost{std::move(why)});
    closed_ = true;
    timer_.cancel();
}

asio::awaitable<void> DaemonLink::converse() {
    const TimePoint deadline = Clock::now() + lost_after_;
    auto connected = co_await client::ControlClient::connect(endpoint_, deadline);
    if (closed_) co_return;
    if (!connected) {
        lose(connected.error().message);
        co_return;
    }
    client_ = std::move(*connected);
    const AgentMessage join = join_;
    send(join);
    heard_ = Clock::now();
    asio::co_spawn(io_, keep_alive(), rethrow);
    while (!closed_) {
        auto received = co_await client_->receive();
        if (!received) {
            lose(fmt::format("lost the rendezvous daemon at {}: {}", to_string(endpoint_), received.error().message));
            co_return;
        }
        heard_ = Clock::now();
        take(std::move(*received));
    }
}

asio::awaitable<void> DaemonLink::keep_alive() {
    while (!closed_) {
        const TimePoint due = Clock::now() + heartbeat_interval_;
        timer_.expires_at(due);
        co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
        if (closed_) co_return;
        const TimePoint now = Clock::now();
        // If we were stopped or starved ourselves, what the daemon said meanwhile still waits in the socket.
        if (now - due > heartbeat_interval_) heard_ = now;
        if (now - heard_ > lost_after_) {
            lose(fmt::format("the rendezvous daemon at {} has said nothing for {} s", to_string(endpoint_),
                             std::chrono::duration<double>(lost_after_).count()));
            co_return;
        }
        const AgentMessage heartbeat = Heartbeat{};
        send(heartbeat);
    }
}

void DaemonLink::take(DaemonMessage message) {
    std::visit(
        Overloaded{
            [this](const Welcome& welcome) {
                heartbeat_interval_ = welcome.heartbeat_interval;
                lost_after_ = welcome.lost_after;
                timer_.cancel();  // the first heartbeat may be due earlier than we thought
                callbacks_.welcomed(welcome);
            },
            [](const Heartbeat&) {},
            [this](const Waiting& waiting) {
                Waiting clean = waiting;
                clean.reason = words_of(waiting.reason);
                callbacks_.waiting(clean);
            },
            [this](const Assignment& assignment) { callbacks_.event(Assigned{assignment}); },
            [this](const Abort& abort) {
                callbacks_.event(AbortReceived{abort.generation, words_of(abort.reason)});
            },
            [this](const Finished& finished) { callbacks_.event(JobFinished{finished.verdict}); },
            [this](const Rejected& rejected) {
                callbacks_.event(DaemonLost{fmt::format("the rendezvous daemon at {} does not take this node: {}",
                                                        to_string(endpoint_), words_of(rejected.reason)),
                                            exit_code::kUsage});
            },
        },
        message);
}

}  // namespace ddprun::agent

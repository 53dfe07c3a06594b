// The daemon's connections: who is let in, what each agent says, and how a connection ends.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/endpoint.hpp"
#include "rendezvous/coordinator/messages_json.hpp"
#include "rendezvous/daemon/daemon.hpp"
#include "rendezvous/daemon/report.hpp"
#include "rendezvous/daemon/session.hpp"
#include "rendezvous/transport/socket.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kCrowdedPause{10};
constexpr std::chrono::milliseconds kAcceptPause{500};  // after EMFILE and its like: until something was closed

std::string name_of_peer(const tcp::socket& socket) {
    error_code ec;
    const tcp::endpoint peer = socket.remote_endpoint(ec);
    if (ec) return "a peer that is gone";
    return to_string(Endpoint{transport::unwrapped(peer.address()).to_string(), peer.port()});
}

awaitable<void> pause(asio::any_io_executor executor, Duration duration) {
    asio::steady_timer timer(std::move(executor), duration);
    co_await timer.async_wait(kTuple);
}

}  // namespace

void Daemon::spawn(awaitable<void> task) {
    asio::co_spawn(acceptor_.get_executor(), std::move(task), [self = shared_from_this()](std::exception_ptr thrown) {
        if (thrown) std::rethrow_exception(thrown);  // a bug of ours: out of io_context::run(), to main()
    });
}

awaitable<void> Daemon::accept_connections() {
    while (!exit_code_) {
        if (strangers_ >= kMaxStrangers) {
            co_await pause(acceptor_.get_executor(), kCrowdedPause);
            continue;
        }
        auto [ec, socket] = co_await acceptor_.async_accept(kTuple);
        if (!acceptor_.is_open()) co_return;
        if (ec) {
            log_stranger(fmt::format("cannot accept a connection: {}; trying again", ec.message()));
            co_await pause(acceptor_.get_executor(), kAcceptPause);
            continue;
        }
        ++strangers_;
        spawn(serve(std::move(socket)));
    }
}

awaitable<void> Daemon::serve(tcp::socket socket) {
    const std::string peer = name_of_peer(socket);
    Result<Greeting> greeting = co_await greet(std::move(socket), Clock::now() + config_.handshake_time);
    --strangers_;
    if (!greeting) {
        log_stranger(fmt::format("closed the connection of {}: {}", peer, greeting.error().message));
        co_return;
    }
    if (exit_code_) co_return;
    ChannelPtr channel = std::move(greeting->channel);
    if (auto* join = std::get_if<coordinator::Join>(&greeting->who)) {
        coordinator::Join named = std::move(*join);
        co_await serve_agent(std::move(named), std::move(channel), peer);
    } else {
        const coordinator::Inspect wish = std::get<coordinator::Inspect>(greeting->who);
        co_await serve_inspector(wish, std::move(channel), peer);
    }
}

awaitable<void> Daemon::serve_agent(coordinator::Join join, ChannelPtr channel, std::string peer) {
    if (!admit(join, channel)) co_return;
    const coordinator::NodeId node = join.node;
    while (true) {
        const Result<coordinator::AgentMessage> message = co_await next_message(channel);
        const auto agent = agents_.find(node);
        if (agent == agents_.end() || agent->second != channel) co_return;  // we closed it, or it was replaced
        if (message) {
            apply(coordinator::NodeMessage{node, *message, Clock::now()});
            inquire(node, *message);
            continue;
        }
        if (message.error().code != Errc::kClosed) {
            spdlog::warn("closed the connection of node {} at {}: {}", printable(join.host), peer,
                         printable(message.error().message));
        }
        channel->abort();
        agents_.erase(agent);
        apply(coordinator::NodeDisconnected{node, Clock::now()});
        co_return;
    }
}

void Daemon::inquire(const coordinator::NodeId& node, const coordinator::AgentMessage& message) {
    if (const auto* stalled = std::get_if<coordinator::Stalled>(&message)) {
        perform(inquiries_.stalled(state_, node, *stalled, Clock::now()));
    } else if (const auto* shown = std::get_if<coordinator::ShownBoard>(&message)) {
        perform(inquiries_.shown(state_, node, *shown, Clock::now()));
    } else if (std::holds_alternative<coordinator::WorkerFailed>(message)) {
        perform(inquiries_.failed(state_, Clock::now()));
    }
}

/// One that looks and changes nothing. It asks again when it has its answer, and goes when it likes.
awaitable<void> Daemon::serve_inspector(coordinator::Inspect wish, ChannelPtr channel, std::string peer) {
    if (wish.protocol != coordinator::kProtocolVersion || inspectors_.size() >= kMaxInspectors) {
        const std::string why = inspectors_.size() >= kMaxInspectors
                                    ? "too many others are looking at this job"
                                    : fmt::format("it speaks version {} of the protocol, this daemon {}", wish.protocol,
                                                  coordinator::kProtocolVersion);
        refuse(channel, {why, false});
        co_return;
    }
    const InspectorId id{++last_inspector_};
    inspectors_[id] = {channel, Clock::now()};
    perform(inquiries_.inspect(state_, id, wish, Clock::now()));
    while (true) {
        const Result<coordinator::AgentMessage> message = co_await next_message(channel);
        const auto* again = message ? std::get_if<coordinator::Inspect>(&*message) : nullptr;
        if (again == nullptr || exit_code_ || inquiries_.is_open(id)) break;
        inspectors_[id].asked = Clock::now();
        perform(inquiries_.inspect(state_, id, *again, Clock::now()));
    }
    inquiries_.forget(id);
    inspectors_.erase(id);
    channel->abort();
    spdlog::debug("the inspector at {} is gone", peer);
}

bool Daemon::admit(const coordinator::Join& join, const ChannelPtr& channel) {
    joining_ = channel;
    apply(coordinator::NodeMessage{join.node, join, Clock::now()});
    const auto agent = agents_.find(join.node);
    return agent != agents_.end() && agent->second == channel;
}

void Daemon::refuse(const ChannelPtr& channel, const coordinator::Rejected& answer) {
    channel->send(coordinator::encode(answer));
    close_later(channel);
}

void Daemon::close_later(ChannelPtr channel) {
    ++closing_;
    awaitable<void> closing = channel->close();
    asio::co_spawn(acceptor_.get_executor(), std::move(closing),
                   [self = shared_from_this(), channel = std::move(channel)](std::exception_ptr) {
                       if (--self->closing_ == 0) self->closed_.cancel();
                   });
}

awaitable<void> Daemon::say_goodbye() {
    error_code ignored;  // closed is closed
    acceptor_.close(ignored);
    for (const auto& [node, channel] : agents_) close_later(channel);
    for (const auto& [id, inspector] : inspectors_) close_later(inspector.channel);
    agents_.clear();
    while (closing_ > 0) co_await closed_.async_wait(kTuple);  // each ends within its own time
    stores_.clear();
}

void Daemon::log_stranger(const std::string& line) {
    if (!stranger_lines_.admits(Clock::now())) return;
    spdlog::info("{}{}", printable(line),
                 stranger_lines_.last() ? " (more of these will not be shown for a while)" : "");
}

}  // namespace ddprun::daemon

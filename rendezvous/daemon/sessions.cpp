#include "rendezvous/daemon/sessions.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <string_view>
#include <utility>

#include "common/daemon_answer.hpp"
#include "common/text/escape.hpp"
#include "common/text/words.hpp"
#include "rendezvous/coordinator/admission.hpp"
#include "rendezvous/daemon/session.hpp"
#include "rendezvous/daemon/status.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;

namespace {

/// Returns the line about the job in the answer to a plain HTTP request (read by launcher/meeting/reach.cpp).
std::string_view line_about(coordinator::Room room) {
    switch (room) {
        case coordinator::Room::kOpen: break;
        case coordinator::Room::kComplete: return kJobIsComplete;
        case coordinator::Room::kEnding: return kJobIsEnding;
    }
    return {};
}

}  // namespace

Sessions::Sessions(asio::any_io_executor executor, ControlPort port, Connections& connections,
                   const Decisions& decisions, GenerationStores& stores, bool members_only, bool vouch, Handle handle)
    : executor_(std::move(executor)),
      port_(std::move(port)),
      connections_(connections),
      decisions_(decisions),
      vouch_(vouch),
      vouching_(
          stores,
          [this](const protocol::NodeId& node, const protocol::VouchRequest& request) {
              connections_.send(node, request);
          },
          [this](const std::string& peer, const std::string& why) {
              port_.log_closed(peer, why, spdlog::level::warn);
          }),
      store_clients_(
          stores, members_only,
          vouch ? StoreClients::Hold([this](UniqueFd socket, Generation generation, const protocol::NodeId& node) {
              vouching_.hold(std::move(socket), generation, node, Clock::now());
          })
                : StoreClients::Hold()),
      job_lines_([this] {
          const coordinator::State& job = decisions_.job();
          const std::string& step = job.config.step;
          return fmt::format("{}{}", line_about(room_for_node(job)),
                             step.empty() ? "" : fmt::format("{}{}.\n", kServesStep, step));
      }),
      handle_(std::move(handle)) {}

void Sessions::start(std::weak_ptr<void> owner) {
    owner_ = std::move(owner);
    spawn(accept_connections());
}

std::function<bool(const std::string&)> Sessions::store_admission() {
    if (!store_clients_.members_only()) return {};
    return [this](const std::string& address) { return store_clients_.is_of_member(decisions_.job(), address); };
}

std::function<void(UniqueFd, const std::string&)> Sessions::store_screen(Generation generation) {
    if (!vouch_) return {};
    return [this, generation](UniqueFd socket, const std::string& address) {
        store_clients_.hold(std::move(socket), generation, address, decisions_.job());
    };
}

void Sessions::end_accepting_for_old_stores() {
    // New connections may arrive meanwhile: accepts as many as the queue can hold, and no more.
    for (int i = 0; i < tcp::acceptor::max_listen_connections; ++i) {
        if (std::optional<Newcomer> newcomer = port_.accept_waiting()) {
            spawn(serve(std::move(*newcomer), std::nullopt));
        } else if (!port_.may_have_waiting()) {
            return;
        }
    }
}

void Sessions::close() {
    closed_ = true;
    port_.close();
    vouching_.close();
}

void Sessions::spawn(awaitable<void> task) {
    asio::co_spawn(executor_, std::move(task), [owner = owner_.lock()](std::exception_ptr thrown) {
        if (thrown) std::rethrow_exception(thrown);  // a bug of ours: out of io_context::run(), to main()
    });
}

awaitable<void> Sessions::accept_connections() {
    while (true) {
        std::optional<Newcomer> newcomer = co_await port_.accept();
        if (!newcomer) co_return;
        spawn(serve(std::move(*newcomer), store_clients_.current()));
    }
}

/// Serves a connection that was accepted while the store of `generation` was open; empty: while there was none.
awaitable<void> Sessions::serve(Newcomer newcomer, std::optional<Generation> generation) {
    const std::string peer = newcomer.peer;
    const std::string address = newcomer.address;
    std::optional<Introduction> introduction = co_await port_.introduce(std::move(newcomer), job_lines_);
    if (!introduction || closed_) co_return;
    if (auto* client = std::get_if<StoreClient>(&*introduction)) {
        const std::string closed = store_clients_.pass_on(std::move(*client), generation, address, decisions_.job());
        if (!closed.empty()) port_.log_closed(peer, closed);
        co_return;
    }
    auto* const greeting = std::get_if<Greeting>(&*introduction);
    ChannelPtr channel = std::move(greeting->channel);
    if (auto* join = std::get_if<protocol::Join>(&greeting->first)) {
        protocol::Join named = std::move(*join);
        co_await serve_agent(std::move(named), std::move(channel), peer, address);
    } else if (const auto* request = std::get_if<protocol::Inspect>(&greeting->first)) {
        co_await serve_inspector(*request, std::move(channel));
    } else {
        serve_order(std::get<protocol::Order>(greeting->first), std::move(channel));
    }
}

awaitable<void> Sessions::serve_agent(protocol::Join join, ChannelPtr channel, std::string peer, std::string address) {
    const protocol::NodeId node = join.node;
    const bool beside_daemon = address == channel->local_address().to_string();
    connections_.set_asking(channel);
    handle_(coordinator::NodeMessage{node, join, beside_daemon});
    if (connections_.is_agent(node, channel)) store_clients_.note_origin(decisions_.job(), node, std::move(address));
    while (connections_.is_agent(node, channel)) {
        Result<protocol::AgentMessage> message = co_await next_message(channel);
        if (!connections_.is_agent(node, channel)) co_return;  // the daemon closed it, or it was replaced
        if (message) {
            if (const auto* vouch = std::get_if<protocol::Vouch>(&*message)) vouching_.answer(node, *vouch);
            handle_(coordinator::NodeMessage{node, std::move(*message)});
            continue;
        }
        const auto& code = message.error().code;
        const bool is_fault = code == Errc::kMalformed || code == Errc::kLimit;
        if (is_fault) {
            spdlog::warn("closed the connection of {} at {}: {}", log_line(name_node(join.host)), peer,
                         log_line(message.error().message));
        }
        connections_.drop(node);
        handle_(coordinator::NodeDisconnected{node, code != Errc::kClosed && code != Errc::kMalformed});
    }
}

/// Returns whether ddpctl speaks another version of the protocol, and refuses it then.
bool Sessions::refuse_other_version(int version, const ChannelPtr& channel) {
    if (version == protocol::kProtocolVersion) return false;
    connections_.answer_and_close(
        channel, protocol::Rejected{
                     fmt::format("ddpctl uses version {} of the protocol, this daemon version {}: use the same ddprun "
                                 "for both",
                                 version, protocol::kProtocolVersion),
                     false});
    return true;
}

/// Follows an order of ddpctl, which has one per connection.
void Sessions::serve_order(const protocol::Order& order, ChannelPtr channel) {
    if (refuse_other_version(order.protocol, channel)) return;
    if (order.command == protocol::Order::Command::kStatus)
        return connections_.answer_and_close(std::move(channel), status_of(decisions_, Clock::now()));
    connections_.set_asking(std::move(channel));
    handle_(coordinator::Ordered{order});
}

/// Serves one ddpctl, which changes nothing. It may send another request after each answer, and disconnect at any time.
awaitable<void> Sessions::serve_inspector(protocol::Inspect request, ChannelPtr channel) {
    if (refuse_other_version(request.protocol, channel)) co_return;
    const auto id = connections_.add_inspector(channel, Clock::now());
    if (!id) {
        connections_.answer_and_close(channel, protocol::Rejected{"too many others are looking at this job", false});
        co_return;
    }
    handle_(diagnosis::InspectionRequested{*id, request});
    while (true) {
        const Result<protocol::AgentMessage> message = co_await next_message(channel);
        const auto* again = message ? std::get_if<protocol::Inspect>(&*message) : nullptr;
        if (again == nullptr || closed_ || is_open(decisions_.inquiries(), *id)) break;
        connections_.touch(*id, Clock::now());
        handle_(diagnosis::InspectionRequested{*id, *again});
    }
    handle_(diagnosis::InspectorLeft{*id});
    connections_.drop(*id);
}

}  // namespace ddprun::daemon

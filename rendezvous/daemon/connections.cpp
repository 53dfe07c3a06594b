#include "rendezvous/daemon/connections.hpp"

#include <boost/asio/co_spawn.hpp>
#include <cassert>
#include <exception>
#include <utility>

#include "rendezvous/protocol/json.hpp"
#include "rendezvous/transport/completion.hpp"

namespace ddprun::daemon {

namespace asio = boost::asio;
using asio::awaitable;
using diagnosis::InspectorId;
using protocol::NodeId;

Connections::Connections(asio::any_io_executor executor, std::optional<asio::ip::address> store_address)
    : executor_(std::move(executor)),
      store_address_(std::move(store_address)),
      closing_(new Closing{.none_left = asio::steady_timer(executor_, TimePoint::max())}) {}

bool Connections::is_agent(const NodeId& node, const ChannelPtr& channel) const {
    const auto agent = agents_.find(node);
    return agent != agents_.end() && agent->second == channel;
}

void Connections::send(const NodeId& node, const protocol::DaemonMessage& message) {
    const auto agent = agents_.find(node);
    if (agent == agents_.end()) return;  // it has just ended, and the coordinator is about to get that event
    transport::Channel& channel = *agent->second;
    if (const auto* assignment = std::get_if<protocol::Assignment>(&message)) {
        protocol::Assignment addressed = *assignment;
        addressed.master_addr = store_address_.value_or(channel.local_address()).to_string();
        channel.send(protocol::encode(addressed));
    } else {
        channel.send(protocol::encode(message));
    }
}

void Connections::disconnect(const NodeId& node) {
    const auto agent = agents_.find(node);
    if (agent == agents_.end()) return;
    close_later(std::move(agent->second));
    agents_.erase(agent);
}

void Connections::drop(const NodeId& node) {
    const auto agent = agents_.find(node);
    if (agent == agents_.end()) return;
    agent->second->abort();
    agents_.erase(agent);
}

std::optional<InspectorId> Connections::add_inspector(ChannelPtr channel, TimePoint now) {
    if (inspectors_.size() >= kMaxInspectors) return std::nullopt;
    const InspectorId id{++last_inspector_};
    inspectors_[id] = {std::move(channel), now};
    return id;
}

void Connections::send(InspectorId id, const protocol::DaemonMessage& message) {
    if (const auto inspector = inspectors_.find(id); inspector != inspectors_.end())
        inspector->second.channel->send(protocol::encode(message));
}

void Connections::drop(InspectorId id) {
    const auto inspector = inspectors_.find(id);
    if (inspector == inspectors_.end()) return;
    inspector->second.channel->abort();
    inspectors_.erase(inspector);
}

void Connections::end_idle_inspectors(TimePoint now) {
    for (const auto& [id, inspector] : inspectors_) {
        if (now - inspector.asked >= kInspectorIdle) inspector.channel->abort();
    }
}

void Connections::answer_and_close(ChannelPtr channel, const protocol::DaemonMessage& answer) {
    assert(channel);
    channel->send(protocol::encode(answer));
    close_later(std::move(channel));
}

void Connections::close_later(ChannelPtr channel) {
    ++closing_->channels;
    awaitable<void> closing = channel->close();
    asio::co_spawn(executor_, std::move(closing), [all = closing_, channel = std::move(channel)](std::exception_ptr) {
        if (--all->channels == 0) all->none_left.cancel();
    });
}

awaitable<void> Connections::close_all() {
    for (const auto& [node, channel] : agents_) close_later(channel);
    for (const auto& [id, inspector] : inspectors_) close_later(inspector.channel);
    agents_.clear();
    while (closing_->channels > 0) co_await closing_->none_left.async_wait(transport::kTuple);
}

}  // namespace ddprun::daemon

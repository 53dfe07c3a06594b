// Agents that send arbitrary messages: none that the daemon accepts breaks its state machines, and agents accept the
// messages that it sends.

#include <set>

#include "rendezvous/daemon/decisions.hpp"
#include "rendezvous/protocol/json.hpp"
#include "tests/catch.hpp"
#include "tests/unit/rendezvous/protocol/message_generator.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;

namespace {

/// The daemon's state machines with two nodes, which may send any message.
class Daemon {
public:
    Daemon() : decisions_(config()) {
        for (const char* node : {"a", "b"}) {
            Join join;
            join.node = join.host = node;
            join.max_nodes = 2;
            join.records = true;
            receive(node, join);
        }
    }

    /// The message arrives on the connection of node "a" or "b", on a new one if it is a Join, or at ddpctl's.
    void receive(const NodeId& node, const AgentMessage& message) {
        now_ += 50ms;
        if (const auto* join = std::get_if<Join>(&message)) {
            handle(coordinator::NodeMessage{join->node, message}, join->node);
        } else if (const auto* order = std::get_if<Order>(&message)) {
            if (order->protocol == kProtocolVersion && order->command != Order::Command::kStatus)
                handle(coordinator::Ordered{*order});
        } else if (const auto* inspect = std::get_if<Inspect>(&message)) {
            const diagnosis::InspectorId inspector{1};
            if (inspect->protocol != kProtocolVersion || is_open(decisions_.inquiries(), inspector)) return;
            handle(diagnosis::InspectionRequested{inspector, *inspect});
        } else if (connected_.contains(node)) {
            handle(coordinator::NodeMessage{node, message});
        }
        handle(coordinator::Tick{});
    }

private:
    static coordinator::Config config() {
        coordinator::Config config;
        config.run_id = "fuzz";
        config.session = "this daemon";
        config.last_call = 100ms;
        return config;
    }

    void handle(daemon::DaemonHappening what, const NodeId& joining = {}) {
        if (ended_) return;
        decisions_.add(std::move(what), now_);
        while (const std::optional<daemon::DaemonStep> step = decisions_.next()) {
            for (const daemon::DaemonAction& action : step->actions) perform(action, joining);
        }
    }

    void perform(const daemon::DaemonAction& action, const NodeId& joining) {
        if (const auto* send = std::get_if<coordinator::Send>(&action)) {
            if (std::holds_alternative<Welcome>(send->message)) {
                CHECK(send->node == joining);
                connected_.insert(send->node);
            }
            check_sent(send->message);
        } else if (const auto* refuse = std::get_if<coordinator::Refuse>(&action)) {
            check_sent(Rejected{refuse->reason, refuse->try_again, refuse->try_for});
        } else if (const auto* reply = std::get_if<coordinator::Reply>(&action)) {
            check_sent(reply->answer);
        } else if (const auto* open = std::get_if<coordinator::OpenStore>(&action)) {
            decisions_.add_follower(coordinator::StoreOpened{open->generation, 4000});
        } else if (const auto* disconnect = std::get_if<coordinator::Disconnect>(&action)) {
            connected_.erase(disconnect->node);
        } else if (const auto* to_agent = std::get_if<diagnosis::ToAgent>(&action)) {
            check_sent(to_agent->message);
        } else if (const auto* to_inspector = std::get_if<diagnosis::ToInspector>(&action)) {
            check_sent(to_inspector->message);
        } else if (std::holds_alternative<coordinator::EndDaemon>(action)) {
            ended_ = true;
        }
    }

    static void check_sent(const DaemonMessage& message) {
        const std::string text = encode(message);
        if (const auto received = decode_daemon_message(text); !received)
            FAIL(received.error().message + " in " + text);
    }

    daemon::Decisions decisions_;
    TimePoint now_{1000s};
    std::set<NodeId> connected_;
    bool ended_ = false;
};

}  // namespace

TEST_CASE("agents that send anything do not break the daemon's state machines", "[coordinator][sim]") {
    for (std::uint32_t seed = 1; seed <= 500; ++seed) {
        CAPTURE(seed);
        Generator generator(seed);
        Daemon daemon;
        for (int i = 0; i < 40; ++i) daemon.receive(i % 2 == 0 ? "a" : "b", generator.agent_message());
    }
}

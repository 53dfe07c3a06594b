#include "tests/sim/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/coordinator/messages_json.hpp"

namespace ddprun::sim {
namespace {

using namespace coordinator;

constexpr milliseconds kFaultsEnd = 60'000ms;
// Beyond the last fault: the join timeout, then one more round with its work and stops; or a last call, and the same.
constexpr milliseconds kRunsEnd = kFaultsEnd + 240'000ms;
constexpr milliseconds kLinger = 3'000ms;

Config config() {
    Config config;
    config.run_id = "sim";
    config.last_call = 10'000ms;
    config.join_timeout = 60'000ms;
    return config;
}

std::string describe(const Event& event) {
    struct {
        std::string operator()(const NodeMessage& e) const { return fmt::format("{} {}", e.node, encode(e.message)); }
        std::string operator()(const NodeDisconnected& e) const { return fmt::format("{} disconnected", e.node); }
        std::string operator()(const StoreOpened& e) const {
            return fmt::format("store {} opened at {}", number(e.generation), e.port);
        }
        std::string operator()(const StoreFailed& e) const {
            return fmt::format("store {} failed", number(e.generation));
        }
        std::string operator()(const Judging& e) const { return fmt::format("judging {}", number(e.generation)); }
        std::string operator()(const Judged& e) const { return fmt::format("judged {}", number(e.generation)); }
        std::string operator()(const Tick&) const { return {}; }
    } text;
    return std::visit(text, event);
}

std::string describe(const Action& action) {
    struct {
        std::string operator()(const Send& a) const { return fmt::format("send {} {}", a.node, encode(a.message)); }
        std::string operator()(const Refuse& a) const { return fmt::format("refuse {}: {}", a.node, a.reason); }
        std::string operator()(const OpenStore& a) const { return fmt::format("open store {}", number(a.generation)); }
        std::string operator()(const CloseStore& a) const {
            return fmt::format("close store {}", number(a.generation));
        }
        std::string operator()(const Disconnect& a) const { return fmt::format("disconnect {}", a.node); }
        std::string operator()(const FinishJob& a) const { return fmt::format("finish {}", to_json(a.verdict)); }
    } text;
    return std::visit(text, action);
}

}  // namespace

SimCluster::SimCluster(std::uint64_t seed)
    : dice_(seed),
      network_(time_, dice_,
               {.at_daemon = [this](ConnectionId id, std::optional<AgentMessage> message) { at_daemon(id, message); },
                .at_agent =
                    [this](ConnectionId id, std::optional<DaemonMessage> message) {
                        agents_.at(connection_owner_.at(id))->receive(id, message);
                    }}),
      state_(config()) {
    plan_agents();
    plan_faults();
    daemon_tick();
    time_.after(kRunsEnd, [this] { check_the_end(); });
}

void SimCluster::plan_agents() {
    const int nodes = dice_.between(1, 6);
    greeting_.min_nodes = dice_.between(1, nodes);
    greeting_.max_nodes = dice_.between(greeting_.min_nodes, nodes + 1);
    greeting_.max_restarts = dice_.between(0, 3);
    luck_.failure_percent = dice_.percent(50) ? dice_.between(5, 30) : 0;
    luck_.work = dice_.between(2'000ms, 20'000ms);
    scenario_ = fmt::format("{} nodes, --nnodes {}:{} --max-restarts {}, failures {} %", nodes, greeting_.min_nodes,
                            greeting_.max_nodes, greeting_.max_restarts, luck_.failure_percent);
    for (int i = 1; i <= nodes; ++i) {
        const bool late = dice_.percent(20);
        add_agent(fmt::format("n{}", i), 0, late ? dice_.between(5'000ms, 50'000ms) : dice_.between(0ms, 3'000ms));
    }
}

void SimCluster::add_agent(const std::string& host, int incarnation, milliseconds arrival) {
    Join greeting = greeting_;
    greeting.node = incarnation == 0 ? host : fmt::format("{}.{}", host, incarnation);
    greeting.host = host;
    greeting.slots = dice_.between(1, 4);
    if (dice_.percent(20)) greeting.node_rank = dice_.between(0, 9);
    auto agent = std::make_unique<Agent>(
        greeting, luck_,
        Agent::World{.time = time_,
                     .dice = dice_,
                     .network = network_,
                     .daemon_listens = [this] { return daemon_listens_; },
                     .connected = [this](Agent& a, ConnectionId id) { connection_owner_[id] = a.id(); },
                     .workers_vanished = [this](const NodeId& node, Generation g) { workers_vanished(node, g); }});
    time_.after(arrival, [a = agent.get()] { a->start(); });
    agents_[greeting.node] = std::move(agent);
}

Agent& SimCluster::any_agent() {
    auto at = agents_.begin();
    std::advance(at, dice_.between(0, static_cast<int>(agents_.size()) - 1));
    return *at->second;
}

void SimCluster::plan_faults() {
    const auto some = [this](int chance, int most, const std::string& name, const std::function<void()>& fault) {
        const int count = dice_.percent(chance) ? dice_.between(1, most) : 0;
        if (count > 0) scenario_ += fmt::format(", {} {}", count, name);
        for (int i = 0; i < count; ++i) time_.after(dice_.between(0ms, kFaultsEnd), fault);
    };
    some(40, 3, "kills", [this] {
        Agent& agent = any_agent();
        const bool first_life = agent.id().find('.') == std::string::npos;
        if (agent.life() == Agent::Life::kAlive && first_life && dice_.percent(50)) {
            add_agent(agent.id(), 1, dice_.between(0ms, 10'000ms));
        }
        agent.kill(dice_.percent(50));
    });
    some(40, 5, "resets", [this] {
        if (const auto& connection = any_agent().connection()) network_.reset(*connection);
    });
    some(40, 3, "partitions",
         [this] { network_.cut_off(any_agent().id(), time_.now() + dice_.between(200ms, 8'000ms)); });
    some(10, 1, "daemon pauses", [this] { daemon_paused_until_ = time_.now() + dice_.between(200ms, 8'000ms); });
    some(15, 2, "signals", [this] {
        ++signals_;
        any_agent().signal(SIGTERM);
    });
    some(10, 1, "signals everywhere", [this] {
        for (const auto& [id, agent] : agents_) {
            ++signals_;
            time_.after(dice_.between(0ms, 1'000ms), [a = agent.get()] { a->signal(SIGTERM); });
        }
    });
}

void SimCluster::step() {
    if (!time_.step()) settled_ = true;
    if (!broken_invariant().empty()) settled_ = true;
}

std::string SimCluster::broken_invariant() const {
    if (!broken_.empty()) return broken_;
    if (!checker_.broken().empty()) return checker_.broken();
    for (const auto& [id, agent] : agents_) {
        if (!agent->mistake().empty()) return agent->mistake();
    }
    return {};
}

// ---- the daemon: what the real one does with events and actions

void SimCluster::daemon_tick() {
    if (!daemon_listens_) return;
    if (time_.now() >= daemon_paused_until_) feed(Tick{time_.now()});
    time_.after(kTickInterval, [this] { daemon_tick(); });
}

void SimCluster::at_daemon(ConnectionId id, const std::optional<AgentMessage>& message) {
    if (time_.now() < daemon_paused_until_) {  // it waits in the socket
        time_.at(daemon_paused_until_, [this, id, message] { at_daemon(id, message); });
        return;
    }
    const auto joined = joined_.find(id);
    if (!message) return end_connection(id);
    if (joined != joined_.end()) return feed(NodeMessage{joined->second, *message, time_.now()}, id);
    if (const auto* join = std::get_if<Join>(&*message)) feed(NodeMessage{join->node, *message, time_.now()}, id);
}

void SimCluster::end_connection(ConnectionId id) {
    network_.close_by_daemon(id);
    const auto joined = joined_.find(id);
    if (joined == joined_.end()) return;
    const NodeId node = joined->second;
    joined_.erase(joined);
    connection_of_.erase(node);
    feed(NodeDisconnected{node, time_.now()});
}

void SimCluster::feed(const Event& event, ConnectionId from) {
    if (!daemon_listens_) return;
    if (const std::string what = describe(event); !what.empty()) record(what);
    Step step = coordinator::step(std::move(state_), event);
    checker_.after_step(step, truth());
    state_ = std::move(step.next);
    if (!step.reason.empty()) record("  # " + step.reason);
    const auto* message = std::get_if<NodeMessage>(&event);
    const bool refused =
        std::ranges::any_of(step.actions, [](const Action& a) { return std::holds_alternative<Refuse>(a); });
    if (message != nullptr && std::holds_alternative<Join>(message->message) && !refused) {
        joined_[from] = message->node;
        connection_of_[message->node] = from;
    }
    for (const Action& action : step.actions) perform(action, from);
}

void SimCluster::perform(const Action& action, ConnectionId from) {
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr || !std::holds_alternative<Heartbeat>(send->message)) record("  -> " + describe(action));
    if (send != nullptr) {
        if (const auto to = connection_of_.find(send->node); to != connection_of_.end())
            network_.to_agent(to->second, send->message);
    } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
        network_.to_agent(from, Rejected{refuse->reason, refuse->try_again});
        network_.close_by_daemon(from);
    } else if (const auto* open = std::get_if<OpenStore>(&action)) {
        const Generation generation = open->generation;
        const bool fails = dice_.between(1, 1000) == 1;
        time_.after(dice_.between(0ms, 10ms), [this, generation, fails] {
            if (fails) return feed(StoreFailed{generation, "out of ports", time_.now()});
            feed(StoreOpened{generation, 4000 + static_cast<int>(number(generation)), time_.now()});
        });
    } else if (const auto* disconnect = std::get_if<Disconnect>(&action)) {
        if (const auto to = connection_of_.find(disconnect->node); to != connection_of_.end()) {
            network_.close_by_daemon(to->second);
            joined_.erase(to->second);
            connection_of_.erase(to);
        }
    } else if (std::holds_alternative<FinishJob>(action)) {
        time_.after(kLinger, [this] {
            daemon_listens_ = false;
            for (const auto& [id, owner] : connection_owner_) network_.close_by_daemon(id);
        });
    }
}

// ---- the truth, and the end

void SimCluster::workers_vanished(const NodeId& node, Generation generation) {
    for (const auto& [id, agent] : agents_) {
        if (id == node || agent->processes() != generation || !dice_.percent(60)) continue;
        time_.after(dice_.between(0ms, 800ms), [a = agent.get(), generation] { a->peer_vanished(generation); });
    }
}

Truth SimCluster::truth() const {
    Truth truth;
    truth.signals = signals_;
    for (const auto& [id, agent] : agents_) {
        if (agent->processes()) truth.processes[id] = *agent->processes();
        if (agent->succeeded()) truth.succeeded[id] = *agent->succeeded();
        truth.failures += agent->failures() + agent->own_stops();
    }
    return truth;
}

void SimCluster::check_the_end() {
    settled_ = true;
    const auto expect = [this](bool holds, const std::string& what) {
        if (!holds && broken_.empty()) broken_ = what;
    };
    bool anybody_came = false;
    for (const auto& [id, agent] : agents_) {
        anybody_came = anybody_came || (agent->life() != Agent::Life::kKilled && !agent->told_to_stop());
        expect(!agent->processes(), id + " has processes at the end");
        expect(agent->life() != Agent::Life::kAlive, id + " has not ended");
        expect(!agent->gave_up() || !daemon_listens_, id + " gave up though the daemon was there");
        if (agent->verdict() && checker_.verdict() && !agent->told_to_stop()) {
            expect(*agent->verdict() == *checker_.verdict(), id + " heard another verdict");
        }
        expect(agent->refused().empty() || agent->refused().find("the job is over") != std::string::npos,
               id + " was refused: " + agent->refused());
    }
    expect(checker_.verdict() || !state_.shape,
           fmt::format("the job has no verdict, it is {}", to_string(state_.phase)));
    expect(checker_.verdict() || !anybody_came, "nobody was served");
}

void SimCluster::record(const std::string& line) {
    trace_.push_back(
        fmt::format("{:10.3f} {}", std::chrono::duration<double>(time_.now().time_since_epoch()).count(), line));
    for (const char c : trace_.back()) {
        hash_ ^= static_cast<unsigned char>(c);
        hash_ *= 1099511628211ull;
    }
}

}  // namespace ddprun::sim

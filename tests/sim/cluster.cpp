#include "tests/sim/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/sim/trace.hpp"

namespace ddprun::sim {
namespace {

using namespace protocol;
using namespace coordinator;

// Beyond the last fault: the join timeout, then one more round with its work and stops; or a last call, and the same.
constexpr milliseconds kRunsOn = 240'000ms;

/// A connection that breaks is noticed by then, and another one made, or the workers are stopped.
constexpr milliseconds kNotifiedWithin = 6'000ms;

/// Makes the rare dice differ from the others; with this number no seed that a test keeps has a rare fault.
constexpr std::uint64_t kRareSeeds = std::uint64_t{12} << 32;
/// The same for the dice of notices.
constexpr std::uint64_t kNoticeSeeds = std::uint64_t{32} << 32;

/// An agent that a cut begins to concern has reset its connection by then.
constexpr milliseconds kOwnResetsWithin = 4'000ms;
/// The newest message of a node that nothing disturbs came less long ago.
constexpr milliseconds kNewestMessageWithin = 1'500ms;

constexpr int kFewNodes = 6;
constexpr int kManyNodes = 64;
constexpr int kMostNodes = 1'024;

/// Most clusters are small: their runs are quick, and most faults need few nodes.
int number_of_nodes(std::uint64_t seed) {
    Dice dice(~seed);
    if (dice.between(1, 250) == 1) return kMostNodes;
    return dice.between(1, dice.percent(3) ? kManyNodes : kFewNodes);
}

/// Everything takes less time in a cluster of the most nodes: each second of it is a thousand times the work.
int times_shorter(int nodes) { return nodes == kMostNodes ? 6 : 1; }

Config config(int nodes) {
    Config config;
    config.run_id = "sim";
    config.session = "this daemon";
    config.last_call = 10'000ms / times_shorter(nodes);
    config.join_timeout = 60'000ms / times_shorter(nodes);
    config.linger = 20'000ms;
    return config;
}

/// Returns whether the node was started for another job. The job has its first node.
bool is_stranger(const State& job, const Join& join) { return job.shape->launch != join.launch; }

bool is_heartbeat_to_node(const daemon::DaemonAction& action) {
    const auto* send = std::get_if<Send>(&action);
    return send != nullptr && std::holds_alternative<Heartbeat>(send->message);
}

/// Returns whether the job has no use for this node while it has all the others.
bool wants_no_other(const State& job, const Join& join) {
    return job.shape->min_nodes == job.shape->max_nodes && !join.spare && !join.session;
}

}  // namespace

SimCluster::SimCluster(std::uint64_t seed) : SimCluster(seed, false, number_of_nodes(seed)) {
    plan_programs();
    plan_agents(number_of_nodes(seed));
    plan_faults();
    plan_daemon_host();
    plan_notices();
    start();
}

SimCluster::SimCluster(std::uint64_t seed, const Script& script) : SimCluster(seed, true, script.nodes) {
    plan_.luck = {.fatal_percent = 0,
                  .spawn_percent = 0,
                  .stuck_percent = 0,
                  .stubborn_percent = 0,
                  .stray_percent = 0,
                  .sliced_percent = 0,
                  .at_notice = script.at_notice,
                  .work = script.work};
    plan_.max_restarts["default"] = script.max_restarts;
    plan_.greeting.programs = {{"default", 1, script.max_restarts}};
    plan_.greeting.min_nodes = script.min_nodes;
    plan_.greeting.max_nodes = script.max_nodes;
    plan_.greeting.spare = true;
    plan_.greeting.records = true;
    plan_.greeting.launch = {"train", 1, "user", 1000};
    plan_.greeting.stop_grace = 5'000ms;
    for (int i = 1; i <= script.nodes; ++i) add_node(fmt::format("n{}", i));
    start();
}

SimCluster::SimCluster(std::uint64_t seed, bool calm, int nodes)
    : dice_(seed),
      rare_dice_(seed + kRareSeeds),
      notice_dice_(seed + kNoticeSeeds),
      network_(time_, dice_,
               {.dialed = [this](ConnectionId id) { dialed(id); },
                .dial_answered =
                    [this](ConnectionId id, bool accepted) {
                        agents_.at(connections_.owner.at(id))->dial_answered(id, accepted);
                    },
                .at_daemon = [this](ConnectionId id, std::optional<AgentMessage> message) { at_daemon(id, message); },
                .at_agent =
                    [this](ConnectionId id, std::optional<DaemonMessage> message) {
                        const NodeId& node = connections_.owner.at(id);
                        if (message && std::holds_alternative<Heartbeat>(*message))
                            connections_.heartbeat_at[node] = time_.now();
                        agents_.at(node)->receive(id, message);
                    }}),
      inspectors_(time_, dice_, [this](const diagnosis::InquiryHappening& what) { from_inspector(what); }),
      decisions_(config(nodes)) {
    plan_.calm = calm;
    plan_.faults_end = 60'000ms / times_shorter(nodes);
}

void SimCluster::start() {
    daemon_tick();
    time_.after(plan_.faults_end + plan_.longest_cut + kRunsOn, [this] { check_the_end(); });
}

void SimCluster::run_for(milliseconds time) {
    const TimePoint end = time_.now() + time;
    time_.at(end, [] {});
    while (!settled_ && time_.now() < end) step();
}

void SimCluster::run_to_end() {
    while (!settled_) step();
}

void SimCluster::add_node(const std::string& host) {
    Join greeting = plan_.greeting;
    greeting.node = greeting.host = host;
    add_agent(std::move(greeting), 0ms);
}

void SimCluster::plan_agents(int nodes) {
    const int shorter = times_shorter(nodes);
    plan_.luck.rarity = std::max(1, nodes / kFewNodes);
    plan_.greeting.min_nodes = dice_.between(1, nodes);
    plan_.greeting.max_nodes = dice_.between(plan_.greeting.min_nodes, nodes + 1);
    for (const char* role : {"server", "trainer"}) plan_.max_restarts[role] = dice_.between(0, 4);
    plan_.luck.failure_percent = dice_.percent(50) ? dice_.between(5, 30) : 0;
    plan_.luck.stall_percent = dice_.percent(50) ? dice_.between(20, 80) : 0;
    plan_.luck.work = dice_.between(2'000ms, 20'000ms / shorter);
    plan_.text = fmt::format(
        "{} nodes, --nnodes {}:{}, --max-restarts {} of role server, {} of trainer, failures {} %, "
        "stalls {} %",
        nodes, plan_.greeting.min_nodes, plan_.greeting.max_nodes, plan_.max_restarts["server"],
        plan_.max_restarts["trainer"], plan_.luck.failure_percent, plan_.luck.stall_percent);
    plan_.greeting.launch = {"train", 1, "user", 1000};
    plan_.greeting.scale_up = kScaleUpNames[static_cast<std::size_t>(dice_.between(0, 2))].first;
    plan_.greeting.stop_grace = 5'000ms;
    plan_.text += fmt::format(", --scale-up {}", to_string(plan_.greeting.scale_up));
    for (int i = 1; i <= nodes; ++i) {
        const bool late = dice_.percent(20);
        add_agent(fmt::format("n{}", i), 0,
                  late ? dice_.between(5'000ms, 50'000ms / shorter) : dice_.between(0ms, 3'000ms));
    }
    if (dice_.percent(15)) add_stranger();
}

/// Adds a node that was started for another job. If it is the first to join, the job is its own.
void SimCluster::add_stranger() {
    Join greeting = plan_.greeting;
    greeting.node = greeting.host = "stranger";
    if (dice_.percent(50))
        greeting.launch = {"train", 1, "stranger", 1001};
    else
        greeting.launch = {"other", 2, "user", 1000};
    plan_.text += ", a stranger";
    add_agent(std::move(greeting), dice_.between(500ms, 50'000ms));
}

void SimCluster::add_agent(const std::string& host, int incarnation, milliseconds arrival) {
    Join greeting = plan_.greeting;
    greeting.node = incarnation == 0 ? host : fmt::format("{}.{}", host, incarnation);
    greeting.host = host;
    greeting.programs.clear();
    for (int left = dice_.percent(40) ? dice_.between(2, 3) : 1; left > 0; --left) {
        const std::string role = dice_.percent(30) ? "server" : "trainer";
        greeting.programs.push_back({role, dice_.between(1, 4), plan_.max_restarts.at(role)});
    }
    greeting.spare = dice_.percent(50);
    greeting.records = !dice_.percent(10);
    if (dice_.percent(20)) greeting.node_rank = dice_.between(0, 9);
    add_agent(std::move(greeting), arrival);
}

void SimCluster::add_agent(Join greeting, milliseconds arrival) {
    Luck luck = plan_.luck;
    if (plan_.has_notices && notice_dice_.percent(15)) luck.at_notice = AtNotice::kGoOn;  // another program
    auto agent = std::make_unique<Agent>(
        greeting, luck,
        Agent::World{.time = time_,
                     .dice = dice_,
                     .network = network_,
                     .dialed = [this](Agent& a, ConnectionId id) { connections_.owner[id] = a.id(); },
                     .workers_vanished = [this](const NodeId& node, Generation g) { workers_vanished(node, g); },
                     .gave_up = [this](const Agent& a) { gave_up(a); },
                     .mistake = [this](const std::string& what) { expect(false, what); }});
    time_.after(arrival, [a = agent.get()] { a->start(); });
    agents_[greeting.node] = std::move(agent);
}

Agent& SimCluster::any_agent() {
    auto at = agents_.begin();
    std::advance(at, dice_.between(0, static_cast<int>(agents_.size()) - 1));
    return *at->second;
}

void SimCluster::order_for_any_node(Order::Command command) {
    if (time_.now() < daemon_.paused_until) return;
    order(Order{.command = command, .node = any_agent().greeting().host});
}

void SimCluster::order(const Order& order) {
    if (time_.now() < daemon_.paused_until) return;
    for (const daemon::DaemonAction& action : handle(Ordered{order}))
        if (const auto* reply = std::get_if<Reply>(&action); reply != nullptr && !reply->answer.refused) ++orders_;
}

void SimCluster::plan_faults() {
    const auto some = [this](int chance, int max_count, const std::string& name, const std::function<void()>& fault) {
        const int count = dice_.percent(chance) ? dice_.between(1, max_count) : 0;
        if (count > 0) plan_.text += fmt::format(", {} {}", count, name);
        for (int i = 0; i < count; ++i) time_.after(dice_.between(0ms, plan_.faults_end), fault);
    };
    some(40, 3, "kills", [this] {
        Agent& agent = any_agent();
        const bool first_life = agent.id().find('.') == std::string::npos && !agents_.contains(agent.id() + ".1");
        if (agent.life() == Agent::Life::kAlive && first_life && dice_.percent(50)) {
            add_agent(agent.id(), 1, dice_.between(0ms, 10'000ms));
        }
        kill(agent, dice_.percent(50)   ? Agent::Kill::kHost
                    : dice_.percent(80) ? Agent::Kill::kAgent
                                        : Agent::Kill::kGuard);
    });
    some(40, 5, "resets", [this] {
        if (const auto& connection = any_agent().connection()) network_.reset(*connection);
    });
    some(30, 4, "one-sided breaks", [this] {
        if (const auto& connection = any_agent().connection()) network_.break_one_end(*connection);
    });
    some(40, 3, "partitions",
         [this] { network_.cut_off(any_agent().id(), time_.now() + dice_.between(200ms, 8'000ms)); });
    some(20, 2, "one-way cuts", [this] {
        const auto direction = dice_.percent(50) ? Network::Direction::kToDaemon : Network::Direction::kToAgent;
        network_.cut_off(any_agent().id(), direction, time_.now() + dice_.between(200ms, 8'000ms));
    });
    some(20, 2, "agent pauses", [this] { any_agent().pause(dice_.between(200ms, 8'000ms)); });
    some(10, 2, "suspended groups", [this] { any_agent().suspend(dice_.between(200ms, 8'000ms)); });
    some(10, 1, "daemon pauses", [this] { daemon_.paused_until = time_.now() + dice_.between(200ms, 8'000ms); });
    some(15, 2, "signals", [this] {
        ++signals_;
        any_agent().signal(SIGTERM);
    });
    some(10, 1, "stops of the daemon", [this] { stop_daemon(); });
    some(30, 4, "notifications", [this] { any_agent().notify(); });
    some(30, 3, "drains", [this] { order_for_any_node(Order::Command::kDrain); });
    some(20, 3, "undrains", [this] { order_for_any_node(Order::Command::kUndrain); });
    some(2, 1, "ends of the daemon's descriptors", [this] { daemon_.opens_stores = false; });
    if (dice_.percent(15))
        time_.after(dice_.between(0ms, 2'000ms), [this] {
            if (!daemon_.starter) handle(StarterEnded{});  // else it is a node, and ends when that does
        });
    some(10, 1, "ends of replacements", [this] { handle(NoMoreNodes{"no node is replaced"}); });
    some(50, agents_.size() > kManyNodes ? 1 : 8, "inspectors", [this] { inspectors_.start(); });
    some(10, 1, "signals everywhere", [this] {
        for (const auto& [id, agent] : agents_) {
            ++signals_;
            time_.after(dice_.between(0ms, 1'000ms), [a = agent.get()] { a->signal(SIGTERM); });
        }
    });
}

/// Decides what the workers of a cluster do after a notice of preemption, if it has any.
void SimCluster::plan_programs() {
    plan_.has_notices = notice_dice_.percent(20);
    if (!plan_.has_notices) return;
    plan_.luck.at_notice = notice_dice_.percent(50)   ? AtNotice::kAgree
                           : notice_dice_.percent(60) ? AtNotice::kStop
                                                      : AtNotice::kGoOn;
    plan_.luck.done_percent = notice_dice_.percent(30) ? 30 : 0;
}

/// Plans notices of one kind or of several, and what often follows: nodes are lost, and the time limit passes.
void SimCluster::plan_notices() {
    if (!plan_.has_notices) return;
    const bool by_limit = notice_dice_.percent(35);
    const int orders = notice_dice_.percent(by_limit ? 20 : 80) ? notice_dice_.between(1, 2) : 0;
    const int signals = by_limit || orders > 0 ? (notice_dice_.percent(30) ? 1 : 0) : notice_dice_.between(1, 2);
    const auto moment = [this] { return notice_dice_.between(0ms, plan_.faults_end); };
    if (by_limit) {
        const milliseconds at = moment();
        const bool passes = notice_dice_.percent(50);
        const milliseconds left = notice_dice_.between(1'000ms, 30'000ms);
        plan_.text += fmt::format(", a time limit{}", passes ? " that passes" : "");
        time_.after(at, [this, passes, left] {
            for (const auto& [id, agent] : agents_) {
                time_.after(notice_dice_.between(0ms, 500ms), [a = agent.get()] { a->near_time_limit(); });
                if (!passes) continue;
                ++signals_;
                time_.after(left + notice_dice_.between(0ms, 500ms), [a = agent.get()] { a->signal(SIGTERM); });
            }
            plan_losses_after_notice();
        });
    }
    if (orders > 0) plan_.text += fmt::format(", {} orders to preempt", orders);
    for (int i = 0; i < orders; ++i) {
        Order preempt{.command = Order::Command::kPreempt, .node = {}};
        if (notice_dice_.percent(60)) preempt.time_left = notice_dice_.between(0ms, 6'000ms);
        time_.after(moment(), [this, preempt] {
            order(preempt);
            plan_losses_after_notice();
        });
    }
    if (signals > 0) plan_.text += fmt::format(", {} signals of preemption", signals);
    for (int i = 0; i < signals; ++i) {
        time_.after(moment(), [this] {
            any_agent().notify();
            plan_losses_after_notice();
        });
    }
}

/// Disturbs a node in half of the cases: while the nodes agree on the step, which takes milliseconds, or while the
/// workers save.
void SimCluster::plan_losses_after_notice() {
    if (!notice_dice_.percent(50)) return;
    const int what = notice_dice_.between(1, 6);
    const milliseconds when =
        notice_dice_.percent(60) ? notice_dice_.between(0ms, 30ms) : notice_dice_.between(0ms, 4'000ms);
    time_.after(when, [this, what] {
        Agent& agent = any_agent();
        switch (what) {
            case 1: return kill(agent, Agent::Kill::kHost);
            case 2: return kill(agent, Agent::Kill::kAgent);
            case 3: return agent.fail();
            case 4: return agent.pause(notice_dice_.between(200ms, 8'000ms));
            default:
                if (const auto& connection = agent.connection()) network_.reset(*connection);
        }
    });
}

/// Puts node n1 on the daemon's host in some clusters, and cuts that host off from the others in some.
void SimCluster::plan_daemon_host() {
    if (rare_dice_.percent(10)) {
        plan_.text += ", n1 on the daemon's host";
        for (const char* id : {"n1", "n1.1"}) network_.put_beside_daemon(id);
        daemon_.starter = "n1";
    }
    if (!rare_dice_.percent(5)) return;
    const milliseconds time = rare_dice_.between(1'000ms, 100'000ms);
    const bool to_agents = rare_dice_.percent(70);
    const bool to_daemon = !to_agents || rare_dice_.percent(70);
    plan_.text += fmt::format(", the daemon's host cut off for {} s ({})", time.count() / 1000,
                              !to_agents   ? "to it"
                              : !to_daemon ? "from it"
                                           : "both ways");
    plan_.longest_cut = time;
    time_.after(rare_dice_.between(0ms, plan_.faults_end / 3),
                [this, time, to_daemon, to_agents] { cut_off_daemon(time, to_daemon, to_agents); });
}

void SimCluster::cut_off_daemon(milliseconds time, bool to_daemon, bool to_agents) {
    cut_ = Cut{.begun = time_.now(), .until = time_.now() + time, .members = {}};
    for (const auto& [id, node] : decisions_.job().nodes) {
        const bool is_calm = time_.now() - network_.whole_since(id) > kOwnResetsWithin;
        if (is_calm && node.link == Link::kConnected) cut_->members.insert(id);
    }
    if (to_daemon) network_.cut_off_daemon(Network::Direction::kToDaemon, cut_->until);
    if (to_agents) network_.cut_off_daemon(Network::Direction::kToAgent, cut_->until);
}

/// The host of the daemon does not lose its power, and its kernel shows the end of each of its processes.
void SimCluster::kill(Agent& agent, Agent::Kill how) {
    if (!network_.is_beside_daemon(agent.id())) return agent.kill(how);
    if (how != Agent::Kill::kGuard) how = rare_dice_.percent(50) ? Agent::Kill::kAgentUnread : Agent::Kill::kAgent;
    agent.kill(how);
}

void SimCluster::step() {
    if (!time_.step()) settled_ = true;
    if (!broken_invariant().empty()) settled_ = true;
}

const std::string& SimCluster::broken_invariant() const {
    if (!broken_.empty()) return broken_;
    if (!checker_.broken().empty()) return checker_.broken();
    if (!inquiry_checker_.broken().empty()) return inquiry_checker_.broken();
    return network_.mistake();
}

std::string SimCluster::last_lines(std::size_t count) const {
    std::string text;
    for (std::size_t i = trace_.lines.size() - std::min(count, trace_.lines.size()); i < trace_.lines.size(); ++i)
        text += trace_.lines[i] + "\n";
    return text;
}

int SimCluster::refusals() const {
    return static_cast<int>(
        std::ranges::count_if(agents_, [](const auto& entry) { return !entry.second->facts().refused.empty(); }));
}

int SimCluster::notified() const {
    int sum = 0;
    for (const auto& [id, agent] : agents_) sum += static_cast<int>(agent->facts().notified.size());
    return sum;
}

int SimCluster::agreements() const {
    int sum = 0;
    for (const auto& [id, agent] : agents_) sum += static_cast<int>(agent->facts().stops.size());
    return sum;
}

int SimCluster::preempted_workers() const {
    int sum = 0;
    for (const auto& [id, agent] : agents_) sum += agent->workers().preemptions;
    return sum;
}

int SimCluster::stuck() const {
    int sum = 0;
    for (const auto& [id, agent] : agents_) sum += agent->workers().stuck;
    return sum;
}

int SimCluster::freezes() const {
    int sum = 0;
    for (const auto& [id, agent] : agents_) sum += agent->facts().freezes;
    return sum;
}

// ---- the daemon: what the real one does with events and actions

void SimCluster::daemon_tick() {
    if (!daemon_.listens) return;
    if (time_.now() >= daemon_.paused_until) {
        if (daemon_.starter && agents_.at(*daemon_.starter)->life() != Agent::Life::kAlive) {
            daemon_.starter.reset();
            handle(StarterEnded{});
        }
        handle(Tick{});
    }
    time_.after(kTickInterval, [this] { daemon_tick(); });
}

void SimCluster::stop_daemon() {
    if (!daemon_.listens) return;
    if (time_.now() < daemon_.paused_until) return time_.at(daemon_.paused_until, [this] { stop_daemon(); });
    ++signals_;
    daemon_.stop_requested = true;
    handle(StopRequested{SIGTERM});
}

void SimCluster::dialed(ConnectionId id) {
    if (time_.now() < daemon_.paused_until)  // its kernel connects, and no program answers the handshake
        return time_.at(daemon_.paused_until, [this, id] { dialed(id); });
    network_.answer_dial(id, daemon_.listens);
}

void SimCluster::at_daemon(ConnectionId id, const std::optional<AgentMessage>& message) {
    if (time_.now() < daemon_.paused_until) {  // it waits in the socket
        time_.at(daemon_.paused_until, [this, id, message] { at_daemon(id, message); });
        return;
    }
    const auto joined = connections_.joined.find(id);
    if (!message) return end_connection(id);
    const int miss_percent = std::holds_alternative<GroupSucceeded>(*message) ? 5   // the verdict
                             : std::holds_alternative<Notify>(*message)       ? 50  // the notification
                                                                              : 0;
    if (miss_percent > 0 && !plan_.calm && dice_.percent(miss_percent)) {
        if (const auto& connection = any_agent().connection()) network_.reset(*connection);
    }
    if (joined != connections_.joined.end()) {
        const NodeMessage received{joined->second, *message};
        if (!std::holds_alternative<Notify>(*message)) return void(handle(received, id));
        const State before = decisions_.job();
        return check_forwarding(before, received, handle(received, id));
    }
    const auto* join = std::get_if<Join>(&*message);
    if (join == nullptr || !daemon_.listens) return;
    std::optional<State> before;  // a copy takes long where there are many nodes
    if (decisions_.job().nodes.size() <= kManyNodes || dice_.percent(5)) before = decisions_.job();
    handle(NodeMessage{join->node, *message, network_.is_beside_daemon(connections_.owner.at(id))}, id);
    const auto answer = connections_.answered.find(id);
    if (answer != connections_.answered.end()) {
        if (before) check_answer(*before, *join, answer->second);
        return;
    }
    expect(!daemon_.listens, fmt::format("the join of {} was not answered", join->node));
}

/// Expects the refusal of a node that does not belong to the job, or for which a job of fixed size has no use, and of
/// no other.
void SimCluster::check_answer(const State& before, const Join& join, const std::optional<Refuse>& refusal) {
    if (!before.shape) return;
    const int wanted = before.shape->max_nodes;
    const auto takes_part = [](const Node& node) {
        return node.link == Link::kConnected && !node.leaving && !node.set_aside && !node.overdue_since;
    };
    const auto connected =
        std::ranges::count_if(before.nodes, [&](const auto& entry) { return takes_part(entry.second); });
    const auto just_heard = std::ranges::count_if(before.nodes, [&](const auto& entry) {
        return takes_part(entry.second) && time_.now() - entry.second.heard_at <= 1s;
    });
    const bool full = wants_no_other(before, join) && connected >= wanted;
    if (refusal && refusal->try_again) return check_temporary_refusal(before, join, *refusal, full);
    if (refusal) {
        const bool too_late = before.phase == Phase::kFinished && join.session;
        expect(is_stranger(before, join) || full || too_late,
               fmt::format("{} was refused: {}", join.node, refusal->reason));
    } else if (before.phase != Phase::kFinished && !before.nodes.contains(join.node)) {
        expect(!is_stranger(before, join), join.node + " was admitted to the job of another");
        expect(!wants_no_other(before, join) || just_heard < wanted,
               join.node + " waits for a job that has all its nodes");
    }
}

/// Expects a node to try again only while a member that may be lost, or the end of the job, is waited for, and to give
/// up only where a member may be lost unseen.
void SimCluster::check_temporary_refusal(const State& before, const Join& join, const Refuse& refusal, bool full) {
    const auto own = before.nodes.find(join.node);
    const bool is_away = std::ranges::any_of(before.group.members, [&](const auto& member) {
        const auto node = before.nodes.find(member.first);
        return node == before.nodes.end() || node->second.link != Link::kConnected;
    });
    const bool stops_for_good =
        before.phase == Phase::kStopping && (before.cause.verdict || before.cause.failure.has_value());
    const bool ends = before.phase == Phase::kFinished || stops_for_good || (wants_no_other(before, join) && is_away);
    const bool is_new = own == before.nodes.end() && !join.session;
    const Duration loss_unseen = before.config.lost_after + before.config.reconnect_grace;
    const bool limited = refusal.try_for == loss_unseen && full;
    const bool unlimited = refusal.try_for == 0ms && is_new && ends;
    expect(limited || unlimited, fmt::format("{} is to try again: {}", join.node, refusal.reason));
}

/// Expects a notification to reach every other member that is connected and may have workers, and no other node. One
/// that another node has just forwarded is the same.
void SimCluster::check_forwarding(const State& before, const NodeMessage& notification,
                                  const std::vector<daemon::DaemonAction>& actions) {
    const auto& notify = std::get<Notify>(notification.message);
    std::set<NodeId> reached;
    for (const daemon::DaemonAction& action : actions) {
        const auto* send = std::get_if<Send>(&action);
        if (send == nullptr || !std::holds_alternative<Notify>(send->message)) continue;
        expect(reached.insert(send->node).second, send->node + " is notified twice");
    }
    std::set<NodeId> members;
    const auto& group = before.group;
    const Duration since_event = time_.now() - before.now;
    const Duration pause =
        since_event > 5 * coordinator::kTickInterval ? since_event : Duration::zero();  // not counted
    const bool is_recent = std::ranges::any_of(group.notifications, [&](const Notification& sent) {
        return time_.now() - sent.at - pause < 1s && !sent.origins.contains(notification.node);
    });
    const bool known = notify.known || is_recent;  // the node had it from the daemon; this message may be late
    if (before.phase == Phase::kRunning && notify.generation == group.generation && !known) {
        for (const auto& [id, node] : before.nodes) {
            if (id != notification.node && node.link == Link::kConnected && node.busy == notify.generation)
                members.insert(id);
        }
    }
    expect(!group.members.contains(notification.node) || reached == members,
           "a notification does not reach the other members, or reaches another node");
    for (const Notification& sent : decisions_.job().group.notifications) notifications_[sent.message.number] = sent;
}

/// Expects that the workers of a node have got each notification of another node that came well before they succeeded,
/// whatever happened to its connection, and no other one. Workers whose start was held (Ctrl-Z) get none from before
/// it.
void SimCluster::check_notified(const Agent& agent) {
    const Agent::Facts& facts = agent.facts();
    const Workers::Facts& workers = agent.workers();
    for (const std::uint64_t number : facts.notified)
        expect(notifications_.contains(number), agent.id() + " was notified of what no node has forwarded");
    for (const auto& [number, sent] : notifications_) {
        if (workers.succeeded != sent.message.generation || sent.origins.contains(agent.id())) continue;
        const bool in_time = sent.at >= workers.started_at && workers.succeeded_at - sent.at >= kNotifiedWithin;
        expect(!in_time || facts.notified.contains(number), agent.id() + " has missed a notification");
    }
}

void SimCluster::from_inspector(const diagnosis::InquiryHappening& what) {
    if (!daemon_.listens) return;
    if (time_.now() < daemon_.paused_until) {
        time_.at(daemon_.paused_until, [this, what] { from_inspector(what); });
        return;
    }
    if (const auto* request = std::get_if<diagnosis::InspectionRequested>(&what)) {
        inquiry_checker_.asked(request->inspector, time_.now());
    } else if (const auto* left = std::get_if<diagnosis::InspectorLeft>(&what)) {
        inquiry_checker_.left(left->inspector);
    }
    handle(what);
}

void SimCluster::end_connection(ConnectionId id) {
    network_.close_by_daemon(id);
    const auto joined = connections_.joined.find(id);
    if (joined == connections_.joined.end()) return;
    const NodeId node = joined->second;
    connections_.joined.erase(joined);
    connections_.of_node.erase(node);
    handle(NodeDisconnected{node, network_.was_broken(id)});
}

std::vector<daemon::DaemonAction> SimCluster::handle(daemon::DaemonHappening what, ConnectionId from) {
    if (!daemon_.listens) return {};
    if (const std::string line = describe(what); !line.empty()) record(line);
    const auto* of_job = std::get_if<Happening>(&what);
    const bool ticked = of_job != nullptr && std::holds_alternative<Tick>(*of_job);
    const auto* received = of_job != nullptr ? std::get_if<NodeMessage>(of_job) : nullptr;
    const bool is_heartbeat = received != nullptr && std::holds_alternative<Heartbeat>(received->message);
    std::vector<daemon::DaemonAction> actions;
    if (of_job != nullptr) note_notice(*of_job);
    decisions_.add(std::move(what), time_.now());
    while (const std::optional<daemon::DaemonStep> step = decisions_.next()) {
        const bool is_idle = step->reason.empty() && std::ranges::all_of(step->actions, is_heartbeat_to_node);
        if (!is_idle || !is_heartbeat) checker_.after_step(decisions_.job(), step->actions, truth());
        if (!step->reason.empty()) check_losses();
        for (const std::string& reason : {step->reason, step->inquiry_reason})
            if (!reason.empty()) record("  # " + reason);
        for (const daemon::DaemonAction& action : step->actions) {
            check_time_limits(action);
            perform(action, from);
        }
        actions.insert(actions.end(), step->actions.begin(), step->actions.end());
    }
    inquiry_checker_.after_event(decisions_, actions, time_.now(), ticked);
    return actions;
}

void SimCluster::perform(const daemon::DaemonAction& action, ConnectionId from) {
    const auto* to_node = std::get_if<Send>(&action);
    if (to_node == nullptr || !std::holds_alternative<Heartbeat>(to_node->message)) record("  -> " + describe(action));
    if (to_node != nullptr) {
        if (std::holds_alternative<Welcome>(to_node->message)) {
            if (const auto older = connections_.of_node.find(to_node->node); older != connections_.of_node.end()) {
                connections_.joined.erase(older->second);
                network_.close_by_daemon(older->second);
            }
            connections_.joined[from] = to_node->node;
            connections_.of_node[to_node->node] = from;
            connections_.answered.emplace(from, std::nullopt);
        }
        send(to_node->node, to_node->message);
    } else if (const auto* refuse = std::get_if<Refuse>(&action)) {
        connections_.answered.emplace(from, *refuse);
        network_.to_agent(from, Rejected{refuse->reason, refuse->try_again, refuse->try_for});
        network_.close_by_daemon(from);
    } else if (const auto* open = std::get_if<OpenStore>(&action)) {
        open_store(open->generation);
    } else if (const auto* disconnect = std::get_if<Disconnect>(&action)) {
        if (const auto to = connections_.of_node.find(disconnect->node); to != connections_.of_node.end()) {
            network_.close_by_daemon(to->second);
            connections_.joined.erase(to->second);
            connections_.of_node.erase(to);
        }
    } else if (const auto* to_agent = std::get_if<diagnosis::ToAgent>(&action)) {
        send(to_agent->node, to_agent->message);
    } else if (const auto* to_inspector = std::get_if<diagnosis::ToInspector>(&action)) {
        if (std::holds_alternative<Inspected>(to_inspector->message)) inspectors_.answered(to_inspector->inspector);
    } else if (std::holds_alternative<EndDaemon>(action)) {
        daemon_.listens = false;
        for (const auto& [id, owner] : connections_.owner) network_.close_by_daemon(id);
    }
}

void SimCluster::send(const NodeId& node, const DaemonMessage& message) {
    if (const auto to = connections_.of_node.find(node); to != connections_.of_node.end())
        network_.to_agent(to->second, message);
}

/// The real daemon answers at once; here the answer may come between other events.
void SimCluster::open_store(Generation generation) {
    const bool fails = !daemon_.opens_stores || (!plan_.calm && dice_.percent(2));
    if (fails) checker_.store_failed(generation);
    time_.after(dice_.between(0ms, 10ms), [this, generation, fails] {
        if (fails)
            handle(StoreFailed{generation, "out of ports"});
        else
            handle(StoreOpened{generation, 4000 + static_cast<int>(number(generation))});
    });
}

// ---- the actual state, and the end

void SimCluster::workers_vanished(const NodeId& node, Generation generation) {
    if (plan_.calm) return;
    const int chance = agents_.size() > kManyNodes ? 1 : 60;
    for (const auto& [id, agent] : agents_) {
        if (id == node || agent->processes() != generation || !dice_.percent(chance)) continue;
        time_.after(dice_.between(0ms, 800ms), [a = agent.get(), generation] { a->peer_vanished(generation); });
    }
}

Truth SimCluster::truth() const {
    return {.of_nodes = [this] { return truth_of_nodes(); },
            .signals = signals_,
            .connected = static_cast<int>(connections_.of_node.size()),
            .stop_requested = daemon_.stop_requested,
            .notices = notices_};
}

TruthOfNodes SimCluster::truth_of_nodes() const {
    TruthOfNodes truth;
    for (const auto& [id, agent] : agents_) {
        if (const auto group = agent->processes()) {
            truth.processes[id] = *group;
            if (agent->frozen()) truth.frozen.insert(id);
        }
        if (agent->workers().succeeded) truth.succeeded[id] = *agent->workers().succeeded;
        if (agent->workers().preempted) truth.preempted[id] = *agent->workers().preempted;
        if (agent->has_daemon_for(kOwnResetsWithin)) truth.looking.insert(id);
        truth.failures += agent->workers().failures;
    }
    return truth;
}

/// Notes a notice of preemption that the coordinator is about to get. It ignores a node that it does not know to be
/// connected, and all of them after the end.
void SimCluster::note_notice(const Happening& what) {
    if (decisions_.job().phase == Phase::kFinished) return;
    if (const auto* ordered = std::get_if<Ordered>(&what)) {
        if (ordered->order.command != Order::Command::kPreempt) return;
        ++notices_taken_;
        notices_.ends_job = true;
        if (!ordered->order.time_left) return;
        const TimePoint deadline = time_.now() + *ordered->order.time_left;
        notices_.deadline = std::min(deadline, notices_.deadline.value_or(deadline));
        return;
    }
    const auto* received = std::get_if<NodeMessage>(&what);
    const auto* notice = received != nullptr ? std::get_if<PreemptionNotice>(&received->message) : nullptr;
    if (notice == nullptr) return;
    const auto node = decisions_.job().nodes.find(received->node);
    if (node == decisions_.job().nodes.end() || node->second.link != Link::kConnected) return;
    ++notices_taken_;
    (notice->by_signal ? notices_.by_signal : notices_.ends_job) = true;
}

/// Expects no group to start long after a node of the job has learned that its time limit is near.
void SimCluster::check_time_limits(const daemon::DaemonAction& action) {
    if (!std::holds_alternative<OpenStore>(action)) return;
    for (const auto& [id, connection] : connections_.of_node) {
        const Agent& agent = *agents_.at(id);
        if (!agent.facts().time_limit_at || agent.life() != Agent::Life::kAlive || agent.signaled()) continue;
        const TimePoint whole_since = std::max({network_.whole_since(id), daemon_.paused_until,
                                                cut_ ? cut_->until : TimePoint(), *agent.facts().time_limit_at});
        expect(time_.now() - whole_since < kNotifiedWithin, id + " did not make its time limit known");
    }
}

/// Expects a node to be lost only if something has disturbed its messages, its agent or the daemon within lost_after,
/// or if its workers do not end.
void SimCluster::check_losses() {
    const Config& config = decisions_.job().config;
    const bool daemon_awake = time_.now() - daemon_.paused_until > config.lost_after;
    for (const auto& [id, node] : decisions_.job().nodes) {
        if (node.link != Link::kLost) {
            lost_.erase(id);
        } else if (lost_.insert(id).second && daemon_awake && agents_.at(id)->life() == Agent::Life::kAlive) {
            const bool is_cut_off = cut_ && !network_.is_beside_daemon(id);
            const TimePoint whole_since = std::max(network_.whole_since(id), is_cut_off ? cut_->until : TimePoint());
            const bool disturbed = time_.now() - whole_since < config.lost_after + 2 * kTickInterval;
            expect(disturbed || node.overdue_since, id + " was lost although its link was whole");
            expect(may_be_lost_in_cut(id) || node.overdue_since, id + " was lost before hold in a cut of all nodes");
        }
    }
}

/// Returns false for a node that has only been cut off together with all others, before that has lasted for `hold`.
bool SimCluster::may_be_lost_in_cut(const NodeId& id) const {
    const bool any_beside =
        std::ranges::any_of(agents_, [&](const auto& entry) { return network_.is_beside_daemon(entry.first); });
    if (any_beside || !cut_ || !cut_->members.contains(id)) return true;
    if (network_.whole_since(id) > cut_->begun + kOwnResetsWithin) return true;
    return time_.now() > cut_->begun + decisions_.job().config.hold - kNewestMessageWithin;
}

/// Expects a node to give up a daemon that listens only three times `hold` after it last heard from that.
void SimCluster::gave_up(const Agent& agent) {
    const State& job = decisions_.job();
    const auto heartbeat_at = connections_.heartbeat_at.find(agent.id());
    if (!daemon_.listens || heartbeat_at == connections_.heartbeat_at.end()) return;
    if (daemon_.paused_until > heartbeat_at->second - kOwnResetsWithin) return;  // it was silent for longer
    expect(time_.now() - heartbeat_at->second > kHoldsOfSearch * job.config.hold - kOwnResetsWithin,
           agent.id() + " has given the daemon up too early");
}

void SimCluster::check_the_end() {
    settled_ = true;
    std::map<Generation, std::uint64_t> stops;
    for (const auto& [id, agent] : agents_)
        for (const auto& [generation, call] : agent->facts().stops)
            expect(stops.emplace(generation, call).first->second == call, id + " stops its workers in another step");
    for (const auto& [id, agent] : agents_) {
        expect(!agent->has_processes(), id + " has processes at the end");
        expect(agent->life() != Agent::Life::kAlive, id + " has not ended");
        if (agent->facts().verdict && checker_.verdict() && !agent->signaled()) {
            expect(*agent->facts().verdict == *checker_.verdict(), id + " got another verdict");
        }
        check_notified(*agent);
        const std::string& refused = agent->facts().refused;
        const bool too_late = refused.find("the job is over") != std::string::npos;
        expect(refused.empty() || too_late || is_stranger(decisions_.job(), agent->greeting()) ||
                   wants_no_other(decisions_.job(), agent->greeting()),
               id + " was refused: " + refused);
    }
    expect(checker_.verdict() || checker_.daemon_end() || !decisions_.job().shape,
           fmt::format("the job has no verdict, it is {}", to_string(decisions_.job().phase)));
    expect(checker_.daemon_end() || !daemon_.listens, "the daemon has not ended");
}

void SimCluster::expect(bool holds, const std::string& what) {
    if (!holds && broken_.empty()) broken_ = what;
}

void SimCluster::record(const std::string& line) {
    trace_.lines.push_back(
        fmt::format("{:10.3f} {}", std::chrono::duration<double>(time_.now().time_since_epoch()).count(), line));
    for (const char c : trace_.lines.back()) {
        trace_.hash ^= static_cast<unsigned char>(c);
        trace_.hash *= 1099511628211ull;
    }
}

}  // namespace ddprun::sim

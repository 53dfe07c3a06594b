#pragma once
// Job: feeds step() with events and keeps its actions. The test sets the time.

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::coordinator {

using namespace std::chrono_literals;

struct Shape {
    int min_nodes = 2;
    int max_nodes = 2;
    int max_restarts = 0;
    int slots = 1;
    ScaleUp scale_up = ScaleUp::kImmediate;
};

inline FailureReport failure(int rank, std::string host,
                             ExitStatus status = {ExitStatus::Kind::kSignaled, SIGKILL, false}) {
    FailureReport report;
    report.rank = Rank{rank};
    report.host = std::move(host);
    report.status = status;
    return report;
}

/// A node's id is its host name here.
class Job {
public:
    explicit Job(Shape shape = {}) : shape_(shape) {}

    Join greeting(const std::string& host) const {
        Join join;
        join.node = host;
        join.host = host;
        join.programs = {{.slots = shape_.slots, .max_restarts = shape_.max_restarts}};
        join.min_nodes = shape_.min_nodes;
        join.max_nodes = shape_.max_nodes;
        join.scale_up = shape_.scale_up;
        join.spare = true;  // the tests of admission clear it
        return join;
    }

    // ---- events; each forgets the actions of the one before
    void feed(const Happening& what) {
        const bool was_over = state.verdict.has_value();
        Step next = step(std::move(state), {now, what});
        state = std::move(next.next);
        actions = std::move(next.actions);
        reason = std::move(next.reason);
        ends_job = !was_over && state.verdict;
    }
    void join(const std::string& host) { join(greeting(host)); }
    void join(const Join& greeting) { say(greeting.node, greeting); }
    void say(const std::string& host, AgentMessage message) { feed(NodeMessage{host, std::move(message)}); }
    /// The next ddprun of a host, whose id is `node`.
    void join_as(const std::string& node, const std::string& host) {
        Join join = greeting(host);
        join.node = node;
        this->join(join);
    }
    void fail(const std::string& host, const FailureReport& report) {
        say(host, WorkerFailed{state.generation, report});
    }
    void stopped(const std::string& host) { say(host, GroupStopped{state.generation}); }
    void succeeded(const std::string& host) { say(host, GroupSucceeded{state.generation}); }
    void leave(const std::string& host, int signal = SIGTERM) { say(host, Leave{signal}); }
    void disconnect(const std::string& host) { feed(NodeDisconnected{host}); }
    void store_opens(int port = 4000) { feed(StoreOpened{state.generation, port}); }

    /// `hosts` join and, with the store open, are running.
    void start(const std::vector<std::string>& hosts) {
        for (const std::string& host : hosts) join(host);
        store_opens();
    }

    /// Every member with workers reports their end.
    void all_stop() {
        std::vector<NodeId> busy;
        for (const auto& [id, node] : state.nodes)
            if (node.link == Link::kConnected && node.busy) busy.push_back(id);
        for (const NodeId& id : busy) stopped(id);
    }
    /// Loses a node whose connection has ended, and starts the next group, after a pause between starts.
    void lose(const std::string& node) {
        disconnect(node);
        pass(1s);
        restart();
    }
    void restart() {
        all_stop();
        while (state.phase == Phase::kGathering && now < state.round.opens_at) pass(100ms);
        if (state.phase == Phase::kOpening) store_opens();
    }

    /// Lets time pass in ticks; connected nodes that are not `silent` send heartbeats. `actions` are those of all
    /// ticks.
    void pass(Duration duration) {
        std::vector<Action> all;
        bool over = false;
        for (const TimePoint end = now + duration; now < end;) {
            now += kTickInterval;
            std::vector<NodeId> speaking;
            for (const auto& [id, node] : state.nodes) {
                if (node.link == Link::kConnected && !silent.contains(id)) speaking.push_back(id);
            }
            for (const NodeId& id : speaking) say(id, Heartbeat{1, state.heartbeats});
            feed(Tick{});
            all.insert(all.end(), actions.begin(), actions.end());
            over = over || ends_job;
        }
        actions = std::move(all);
        ends_job = over;
    }

    // ---- the actions of the newest event
    template <typename Message>
    std::map<std::string, Message> sent() const {
        std::map<std::string, Message> result;
        for (const Action& action : actions) {
            const auto* send = std::get_if<Send>(&action);
            if (send == nullptr) continue;
            if (const auto* message = std::get_if<Message>(&send->message)) result[send->node] = *message;
        }
        return result;
    }
    template <typename Kind>
    std::vector<Kind> asked() const {
        std::vector<Kind> result;
        for (const Action& action : actions) {
            if (const auto* found = std::get_if<Kind>(&action)) result.push_back(*found);
        }
        return result;
    }
    /// Returns the hosts that were sent a Message, in order.
    template <typename Message>
    std::vector<std::string> receivers() const {
        std::vector<std::string> hosts;
        for (const auto& [host, message] : sent<Message>()) hosts.push_back(host);
        return hosts;
    }
    bool opens(int generation) const { return asked<OpenStore>() == std::vector{OpenStore{Generation{generation}}}; }
    bool closes(int generation) const { return asked<CloseStore>() == std::vector{CloseStore{Generation{generation}}}; }
    /// Returns the verdict, if that event ended the job.
    Verdict verdict() const {
        return ends_job ? *state.verdict : Verdict{.exit_code = -1, .reason = "no verdict", .culprit = {}};
    }

    State state{Config{
        .run_id = "mnist", .session = "session", .heartbeat_interval = 1s, .lost_after = 3s, .reconnect_grace = 1s}};
    std::vector<Action> actions;
    std::string reason;
    bool ends_job = false;  ///< that event gave the verdict
    TimePoint now{100s};
    std::set<NodeId> silent;

private:
    Shape shape_;
};

using Hosts = std::vector<std::string>;

/// Three nodes of 2:3, running.
inline Job three(int max_restarts = 0) {
    Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = max_restarts, .slots = 2});
    job.start({"n1", "n2", "n3"});
    return job;
}

}  // namespace ddprun::coordinator

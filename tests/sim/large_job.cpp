#include "tests/sim/large_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <queue>
#include <stdexcept>
#include <vector>

#include "rendezvous/daemon/decisions.hpp"
#include "rendezvous/protocol/json.hpp"

namespace ddprun::sim {
namespace {

using namespace protocol;
using namespace std::chrono_literals;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kSendCost = 3us;  // a write of some 100 bytes to a socket
constexpr microseconds kLatency = 500us;
constexpr milliseconds kStopTime = 50ms;  // of the workers of a node
constexpr milliseconds kRunBeforeDeath = 5'000ms;

nanoseconds cpu_now() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

class LargeJob {
public:
    explicit LargeJob(int nodes) : nodes_(nodes), decisions_(config()) {}

    LargeJobTimes run() {
        const nanoseconds begin = cpu_now();
        for (int i = 0; i < nodes_; ++i) handle(coordinator::NodeMessage{name(i), join(i)});
        const nanoseconds joined = cpu_now();
        expect(assigned_ == nodes_, "the first group has not started on every node");
        pass(kRunBeforeDeath);

        const TimePoint death = now_;
        const int dying = nodes_ / 3;
        last_stop_ = last_start_ = death;
        assigned_ = 0;
        at(kLatency, dying, WorkerFailed{Generation{1}, failure()});
        at(kLatency + kStopTime, dying, GroupStopped{Generation{1}});
        pass(kRunBeforeDeath);
        expect(aborted_ >= nodes_ - 1, "not every node was stopped");
        expect(assigned_ == nodes_, "the second group has not started on every node");
        using std::chrono::duration_cast;
        return {duration_cast<microseconds>(last_stop_ - death), duration_cast<microseconds>(last_start_ - death),
                duration_cast<milliseconds>(joined - begin), duration_cast<milliseconds>(cpu_now() - begin)};
    }

private:
    struct Arrival {
        TimePoint when;
        int node;
        AgentMessage message;
        bool operator>(const Arrival& other) const { return when > other.when; }
    };

    static coordinator::Config config() {
        coordinator::Config config;
        config.run_id = "large";
        config.session = "this daemon";
        return config;
    }
    static NodeId name(int i) { return fmt::format("node{:05}", i); }
    Join join(int i) const {
        Join join;
        join.node = join.host = name(i);
        join.programs = {{"default", 8, 3}};
        join.min_nodes = join.max_nodes = nodes_;
        return join;
    }
    FailureReport failure() const {
        FailureReport report;
        report.host = name(nodes_ / 3);
        report.rank = Rank{nodes_ / 3 * 8};
        report.pid = 100;
        report.status.number = 3;
        return report;
    }

    static void expect(bool holds, const char* what) {
        if (!holds) throw std::runtime_error(what);
    }

    void at(Duration delay, int node, AgentMessage message) {
        arrivals_.push({now_ + delay, node, std::move(message)});
    }

    /// Passes time: ticks, the heartbeats of all nodes, and what arrives.
    void pass(milliseconds time) {
        const TimePoint end = now_ + time;
        while (next_tick_ <= end) {
            while (!arrivals_.empty() && arrivals_.top().when <= next_tick_) {
                Arrival arrival = arrivals_.top();
                arrivals_.pop();
                now_ = std::max(now_, arrival.when);  // the daemon may have been busy
                handle(coordinator::NodeMessage{name(arrival.node), std::move(arrival.message)});
            }
            now_ = std::max(now_, next_tick_);
            next_tick_ += coordinator::kTickInterval;
            handle(coordinator::Tick{});
            if (++ticks_ % 5 != 0) continue;
            for (int i = 0; i < nodes_; ++i)
                handle(coordinator::NodeMessage{name(i), Heartbeat{ticks_ / 5, decisions_.job().heartbeats}});
        }
    }

    /// The daemon's one thread: its decision and its messages, one after the other, take the time that they take here.
    void handle(daemon::DaemonHappening what) {
        const TimePoint begin = now_;
        const nanoseconds cpu_begin = cpu_now();
        nanoseconds sending{};
        decisions_.add(std::move(what), begin);
        while (std::optional<daemon::DaemonStep> step = decisions_.next()) {
            for (daemon::DaemonAction& action : step->actions) {
                if (const auto* open = std::get_if<coordinator::OpenStore>(&action))
                    decisions_.add_follower(coordinator::StoreOpened{open->generation, 4000});
                const auto* send = std::get_if<coordinator::Send>(&action);
                if (send == nullptr) continue;
                expect(!encode(send->message).empty(), "a message without a text");
                sending += kSendCost;
                if (!std::holds_alternative<Heartbeat>(send->message))
                    deliver(*send, begin + (cpu_now() - cpu_begin) + sending + kLatency);
            }
        }
        now_ = begin + (cpu_now() - cpu_begin) + sending;
    }

    void deliver(const coordinator::Send& send, TimePoint when) {
        if (std::holds_alternative<Assignment>(send.message)) {
            ++assigned_;
            last_start_ = std::max(last_start_, when);
        } else if (const auto* abort = std::get_if<Abort>(&send.message)) {
            ++aborted_;
            last_stop_ = std::max(last_stop_, when);
            const int node = std::stoi(send.node.substr(4));
            if (node != nodes_ / 3) arrivals_.push({when + kStopTime, node, GroupStopped{abort->generation}});
        } else {
            expect(!std::holds_alternative<Rejected>(send.message), "a node was rejected");
        }
    }

    int nodes_;
    daemon::Decisions decisions_;
    TimePoint now_{1000s};
    TimePoint next_tick_{1000s};
    std::uint64_t ticks_ = 0;
    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
    int assigned_ = 0;
    int aborted_ = 0;
    TimePoint last_stop_;
    TimePoint last_start_;
};

}  // namespace

std::string large_job_model() {
    return fmt::format(
        "one thread of the daemon with the CPU time of this machine and {} us for each write, {} us to a node, {} ms "
        "to stop workers",
        kSendCost / 1us, kLatency / 1us, kStopTime / 1ms);
}

LargeJobTimes run_large_job(int nodes) { return LargeJob(nodes).run(); }

}  // namespace ddprun::sim

#include "agent/event_json.hpp"

#include <string>
#include <utility>
#include <variant>

#include "agent/job_report.hpp"
#include "agent/json_values.hpp"
#include "agent/workers/environment.hpp"
#include "common/overloaded.hpp"

namespace ddprun::agent {
namespace {

namespace json = boost::json;
using Description = std::optional<json::object>;

json::object named(const char* name) { return {{"event", name}}; }

json::object with_reason(const char* name, const std::string& reason) {
    return {{"event", name}, {"reason", text_json(reason)}};
}

json::object with_signal(const char* name, int signal) {
    return {{"event", name}, {"signal", signal}, {"signal_name", signal_name(signal)}};
}

/// Adds the ranks of a worker, and its role.
void add_worker(json::object& object, int rank_base, LocalRank rank, const AgentConfig& config) {
    object["rank"] = rank_base + number(rank);
    object["local_rank"] = number(rank);
    object["role"] = text_json(role_of(config.programs, rank));
}

json::object describe_exit(const WorkerExited& exited, int rank_base, const AgentConfig& config) {
    json::object object = named("worker_exited");
    add_worker(object, rank_base, exited.rank, config);
    add_end(object, exited.status);
    object["by_itself"] = exited.by_itself;
    return object;
}

json::object describe_abort(const AbortReceived& abort) {
    json::object object = with_reason("abort", abort.reason);
    object["generation"] = number(abort.generation);
    if (abort.signal != 0) object["signal_name"] = signal_name(abort.signal);
    return object;
}

json::object describe_assignment(const protocol::Assignment& assignment, const AgentConfig& config) {
    const Endpoint master = master_of(assignment, config.master);
    return {{"event", "assigned"},
            {"reason", text_json(assignment.reason)},
            {"nodes", assignment.node_count},
            {"world_size", assignment.world_size},
            {"first_rank", assignment.rank_base},
            {"workers", config.slots()},
            {"restart", assignment.restart ? assignment.restart->number : 0},
            {"restart_role", restart_role_json(assignment)},
            {"max_restarts", assignment.max_restarts},
            {"master_addr", master.host},
            {"master_port", master.port}};
}

json::object describe_finish(const Finish& finish) {
    const protocol::Verdict* const verdict = finish.verdict ? &*finish.verdict : nullptr;
    const std::string_view result = result_of(verdict, finish.exit_code);
    json::object object =
        with_reason("verdict", verdict != nullptr && finish.why.empty() ? verdict->reason : finish.why);
    object["result"] = json::string_view(result.data(), result.size());
    object["exit_code"] = finish.exit_code;
    return object;
}

}  // namespace

Description describe(const Event& event, const worker_group::State& state, const AgentConfig& config) {
    return std::visit(
        Overloaded{
            [](const Welcomed&) -> Description { return named("joined"); },
            [&](const WorkerExited& exited) -> Description { return describe_exit(exited, state.rank_base, config); },
            [&](const SpawnFailed& failed) -> Description {
                json::object object = with_reason("start_failed", failed.error.message);
                add_worker(object, state.rank_base, failed.rank, config);
                return object;
            },
            [](const AbortReceived& abort) -> Description { return describe_abort(abort); },
            [](const GroupReaped&) -> Description { return named("stopped"); },
            [](const ConnectionChanged& change) -> Description {
                return with_reason(change.connected ? "connection_back" : "connection_lost", change.text);
            },
            [](const LeaseEnded& lease) -> Description { return with_reason("frozen", lease.why); },
            [](const HoldEnded& hold) -> Description { return with_reason("hold_ended", hold.why); },
            [](const DaemonLost& lost) -> Description { return with_reason("daemon_lost", lost.why); },
            [](const StopSignal& stop) -> Description { return with_signal("signal", stop.signal); },
            [](const NotifySignal& notify) -> Description { return with_signal("signal", notify.signal); },
            [](const NotifyReceived& notify) -> Description { return with_signal("signal_forwarded", notify.signal); },
            [&](const PreemptReceived& preempt) -> Description {
                if (preempt.notice.stop_at > 0) return std::nullopt;  // sent again with the step at which to stop
                return with_reason("preemption", preempt.notice.reason);
            },
            [](const NoticeReceived& notice) -> Description { return with_reason("notice", notice.notice.text); },
            [](const Suspended&) -> Description { return named("suspended"); },
            [](const Continued&) -> Description { return named("continued"); },
            [](const GuardLost&) -> Description { return named("guard_lost"); },
            [](const auto&) -> Description { return std::nullopt; },
        },
        event.what);
}

Description describe(const Action& action, const worker_group::State& state, const std::string& reason,
                     const AgentConfig& config) {
    return std::visit(
        Overloaded{
            [](const PrintWait& wait) -> Description { return with_reason("waiting", wait.reason); },
            [&](const StartWorkers& start) -> Description { return describe_assignment(start.assignment, config); },
            [&](const SignalGroup& signal) -> Description {
                const bool succeeded = state.phase == worker_group::Phase::kSucceeded;
                if (succeeded && !state.killed) return std::nullopt;  // for what the workers have left
                json::object object = with_signal("stopping", signal.signal);
                object["reason"] = text_json(reason);
                return object;
            },
            [](const SendMessage& send) -> Description {
                if (!std::holds_alternative<protocol::GroupSucceeded>(send.message)) return std::nullopt;
                return named("succeeded");
            },
            [](const Finish& finish) -> Description { return describe_finish(finish); },
            [](const auto&) -> Description { return std::nullopt; },
        },
        action);
}

json::object describe_start(const std::vector<pid_t>& pids, const JobHistory& history, const AgentConfig& config) {
    json::array started;
    const int base = history.latest()->assignment.rank_base;
    for (int local = 0; const pid_t pid : pids) {
        json::object worker;
        add_worker(worker, base, LocalRank{local++}, config);
        worker["pid"] = pid;
        started.push_back(std::move(worker));
    }
    json::object object{{"event", "workers_started"}, {"workers", std::move(started)}};
    const GroupTimes& group = *history.latest();
    if (const GroupTimes* const before = history.before_latest()) {
        object["detect_ms"] = milliseconds_json(before->time.detect);
        object["stop_ms"] = milliseconds_json(before->time.stop);
    }
    const TimeAccount time = history.time_of_latest(group.started_at.value_or(group.assigned_at));
    object["waiting_ms"] = milliseconds_json(time.waiting);
    object["rendezvous_ms"] = milliseconds_json(time.rendezvous);
    object["start_ms"] = milliseconds_json(time.start);
    return object;
}

}  // namespace ddprun::agent

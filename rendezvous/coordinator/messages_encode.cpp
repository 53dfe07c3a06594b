#include <boost/json.hpp>

#include <algorithm>

#include "rendezvous/coordinator/messages_inspect_json.hpp"
#include "rendezvous/coordinator/messages_json.hpp"
#include "rendezvous/coordinator/utf8.hpp"

namespace ddprun::coordinator {
namespace {

namespace json = boost::json;

json::string text(std::string_view value) { return json::string(clean_text(value, kMaxTextBytes)); }

enum class Keep { kFirst, kLast };

/// As many of `values` as kMaxListBytes holds, counted from the end that matters.
json::array list(const std::vector<std::string>& values, Keep keep) {
    std::vector<json::string> kept;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        json::string value = text(values[keep == Keep::kFirst ? i : values.size() - 1 - i]);
        bytes += value.size() + 1;  // an empty text counts too: this bounds their number
        if (bytes > kMaxListBytes) break;
        kept.push_back(std::move(value));
    }
    if (keep == Keep::kLast) std::ranges::reverse(kept);
    json::array result;
    for (json::string& value : kept) result.emplace_back(std::move(value));
    return result;
}

const char* name(Outcome outcome) {
    switch (outcome) {
        case Outcome::kSucceeded: return "succeeded";
        case Outcome::kWorkerFailed: return "worker_failed";
        case Outcome::kStopped: return "stopped";
        case Outcome::kInfrastructure: return "infrastructure";
    }
    return "infrastructure";
}

json::object status_fields(const ExitStatus& status) {
    return {{"kind", status.kind == ExitStatus::Kind::kExited ? "exited" : "signaled"},
            {"number", status.number},
            {"core_dumped", status.core_dumped}};
}

const char* name(OomKill oom) {
    switch (oom) {
        case OomKill::kNo: return "no";
        case OomKill::kMaybe: return "maybe";
        case OomKill::kYes: return "yes";
        case OomKill::kUnknown: break;
    }
    return "unknown";
}

json::object failure_fields(const FailureReport& failure) {
    json::object fields{{"rank", number(failure.rank)},
                        {"local_rank", number(failure.local_rank)},
                        {"node_rank", number(failure.node_rank)},
                        {"host", text(failure.host)},
                        {"pid", failure.pid},
                        {"status", status_fields(failure.status)},
                        {"message", text(failure.message)},
                        {"last_lines", list(failure.last_lines, Keep::kLast)}};
    if (failure.failing_for.count() > 0) fields["failing_for_ms"] = failure.failing_for.count();
    if (!failure.activity.empty()) fields["activity"] = text(failure.activity);
    if (failure.oom != OomKill::kUnknown) fields["oom"] = name(failure.oom);
    if (!failure.log_file.empty()) fields["log_file"] = text(failure.log_file);
    return fields;
}

json::object verdict_fields(const Verdict& verdict) {
    json::object fields{{"outcome", name(verdict.outcome)},
                        {"exit_code", verdict.exit_code},
                        {"reason", text(verdict.reason)},
                        {"restarts", verdict.restarts}};
    if (verdict.culprit) fields["culprit"] = failure_fields(*verdict.culprit);
    if (!verdict.judged.empty()) fields["judged"] = text(verdict.judged);
    if (!verdict.hint.empty()) fields["hint"] = text(verdict.hint);
    if (verdict.bystander) fields["bystander"] = true;
    return fields;
}

json::object fields(const Join& m) {
    json::object result{{"type", "join"},
                        {"protocol", m.protocol},
                        {"node", text(m.node)},
                        {"host", text(m.host)},
                        {"pid", m.pid},
                        {"slots", m.slots},
                        {"min_nodes", m.min_nodes},
                        {"max_nodes", m.max_nodes},
                        {"max_restarts", m.max_restarts}};
    if (m.run_id) result["run_id"] = text(*m.run_id);
    if (m.node_rank) result["node_rank"] = *m.node_rank;
    if (m.session) result["session"] = text(*m.session);
    if (m.boards) result["boards"] = true;
    return result;
}

json::object fields(const Heartbeat&) { return {{"type", "heartbeat"}}; }

json::object fields(const WorkerFailed& m) {
    return {{"type", "worker_failed"}, {"generation", number(m.generation)}, {"failure", failure_fields(m.failure)}};
}

json::object fields(const WorkerFinished& m) {
    return {{"type", "worker_finished"}, {"generation", number(m.generation)}, {"rank", number(m.rank)}};
}

json::object fields(const GroupStopped& m) { return {{"type", "group_stopped"}, {"generation", number(m.generation)}}; }

json::object fields(const GroupSucceeded& m) {
    return {{"type", "group_succeeded"}, {"generation", number(m.generation)}};
}

json::object fields(const Leave& m) { return {{"type", "leave"}, {"signal", m.signal}}; }

json::object fields(const Welcome& m) {
    json::object result{{"type", "welcome"},
                        {"run_id", text(m.run_id)},
                        {"heartbeat_interval_ms", m.heartbeat_interval.count()},
                        {"lost_after_ms", m.lost_after.count()}};
    if (!m.node_name.empty()) result["node_name"] = text(m.node_name);
    if (!m.session.empty()) result["session"] = text(m.session);
    if (m.boards) result["boards"] = true;
    return result;
}

json::object fields(const Waiting& m) {
    return {{"type", "waiting"},
            {"present", list(m.present, Keep::kFirst)},
            {"min_nodes", m.min_nodes},
            {"max_nodes", m.max_nodes},
            {"waited_ms", m.waited.count()},
            {"reason", text(m.reason)}};
}

json::object fields(const Assignment& m) {
    json::object result{{"type", "assignment"},
                        {"generation", number(m.generation)},
                        {"node_rank", number(m.node_rank)},
                        {"node_count", m.node_count},
                        {"rank_base", m.rank_base},
                        {"world_size", m.world_size},
                        {"master_addr", text(m.master_addr)},
                        {"master_port", m.master_port},
                        {"restart_count", m.restart_count},
                        {"max_restarts", m.max_restarts},
                        {"reason", text(m.reason)}};
    if (m.restart > 0) result["restart"] = m.restart;
    return result;
}

json::object fields(const Abort& m) {
    return {{"type", "abort"}, {"generation", number(m.generation)}, {"reason", text(m.reason)}};
}

json::object fields(const Finished& m) { return {{"type", "finished"}, {"verdict", verdict_fields(m.verdict)}}; }

json::object fields(const Rejected& m) {
    json::object result{{"type", "rejected"}, {"reason", text(m.reason)}};
    if (m.try_again) result["try_again"] = true;
    return result;
}

template <typename Message>
std::string encode_any(const Message& message) {
    return std::visit([](const auto& m) { return json::serialize(fields(m)); }, message);
}

}  // namespace

std::string encode(const AgentMessage& message) { return encode_any(message); }
std::string encode(const DaemonMessage& message) { return encode_any(message); }
std::string to_json(const Verdict& verdict) { return json::serialize(verdict_fields(verdict)); }

}  // namespace ddprun::coordinator

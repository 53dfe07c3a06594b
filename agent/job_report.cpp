#include "agent/job_report.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "agent/json_values.hpp"
#include "agent/workers/error_file.hpp"
#include "common/exit_codes.hpp"
#include "common/text/list.hpp"
#include "rendezvous/protocol/json.hpp"

namespace ddprun::agent {
namespace {

namespace json = boost::json;
using protocol::FailureReport;
using protocol::Outcome;
using protocol::Verdict;

/// Completes the culprit of a verdict in its JSON form by what programs need decoded.
json::value culprit_json(json::object culprit, const FailureReport& failure) {
    culprit.erase("status");
    add_end(culprit, failure.status);
    culprit["end"] = text_json(describe_end(failure));
    if (failure.pid == 0) {
        culprit["pid"] = nullptr;
        culprit["end"] = "could not be started";
    }
    for (const char* key : {"activity", "log_file", "oom", "program", "role"}) culprit.emplace(key, nullptr);
    return culprit;
}

json::value oom_json(protocol::OomKill oom) {
    switch (oom) {
        case protocol::OomKill::kNo: return "no";
        case protocol::OomKill::kMaybe: return "maybe";
        case protocol::OomKill::kYes: return "yes";
        case protocol::OomKill::kUnknown: break;
    }
    return nullptr;
}

/// Returns the workers of `verdict` that failed beside the culprit: the victims, or the others.
json::array also_failed_json(const Verdict& verdict, bool victims) {
    json::array kinds;
    for (const protocol::FailedRanks& failed : verdict.also_failed) {
        if (failed.victims != victims) continue;
        json::object kind;
        json::array ranges;
        for (const protocol::RankRun& run : failed.ranks)
            ranges.push_back(json::array{run.first, run.first + run.count - 1});
        kind["ranks"] = std::move(ranges);
        add_end(kind, failed.status);
        kind["oom"] = oom_json(failed.oom);
        kinds.push_back(std::move(kind));
    }
    return kinds;
}

json::value error_json(const std::string& text) {
    if (text.empty() || !parse_error_file(text)) return nullptr;
    return json::parse({text.data(), text.size()});
}

json::object group_json(const GroupTimes& group) {
    const protocol::Assignment& assignment = group.assignment;
    return {{"generation", number(assignment.generation)},
            {"node_rank", number(assignment.node_rank)},
            {"nodes", assignment.node_count},
            {"world_size", assignment.world_size},
            {"first_rank", assignment.rank_base},
            {"restart", assignment.restart ? assignment.restart->number : 0},
            {"restart_role", restart_role_json(assignment)},
            {"reason", text_json(assignment.reason)},
            {"phases", phases_json(group.time)}};
}

void add_verdict(json::object& object, const JobReport& report) {
    const Verdict& verdict = *report.verdict;
    object["diagnosis"] = text_json(verdict.diagnosis);
    object["restarts"] = verdict.restarts;
    object["also_failed"] = also_failed_json(verdict, false);
    object["victims"] = also_failed_json(verdict, true);
    if (!verdict.culprit) return;
    json::object culprit = json::parse(protocol::to_json(verdict)).at("culprit").get_object();
    object[verdict.first_victim ? "first_victim" : "culprit"] = culprit_json(std::move(culprit), *verdict.culprit);
    object["error_file"] = error_json(report.error_text);
}

void add_groups(json::object& object, const std::deque<GroupTimes>& groups) {
    json::array all;
    for (const GroupTimes& group : groups) all.push_back(group_json(group));
    object["groups"] = std::move(all);
    if (groups.empty()) return;
    const protocol::Assignment& latest = groups.back().assignment;
    object["generation"] = number(latest.generation);
    object["node_rank"] = number(latest.node_rank);
    object["nodes"] = latest.node_count;
    object["world_size"] = latest.world_size;
    object["max_restarts"] = latest.max_restarts;
}

json::value name_or_null(const std::string& name) {
    return name.empty() ? json::value(nullptr) : json::value(text_json(name));
}

}  // namespace

std::string_view result_of(const Verdict* verdict, int exit_code) {
    if (exit_code == exit_code::kNeverRan && (verdict == nullptr || verdict->outcome == Outcome::kSucceeded))
        return "not_needed";
    if (verdict != nullptr) {
        switch (verdict->outcome) {
            case Outcome::kSucceeded: return "succeeded";
            case Outcome::kWorkerFailed:  // if a worker was never started, its program cannot be executed
                return verdict->culprit && verdict->culprit->pid == 0 ? "usage" : "worker_failed";
            case Outcome::kStopped: return "interrupted";
            case Outcome::kPreempted: return "preempted";
            case Outcome::kInfrastructure: return "infrastructure";
        }
    }
    switch (exit_code) {
        case exit_code::kSuccess: return "succeeded";
        case exit_code::kUsage:
        case exit_code::kCannotExecute:
        case exit_code::kProgramNotFound: return "usage";
        case exit_code::kInfrastructure: return "infrastructure";
        default: return exit_code > exit_code::kSignalBase ? "interrupted" : "internal";
    }
}

JobName job_name(const AgentConfig& config) {
    std::vector<std::string> programs;
    for (const WorkerProgram& program : config.programs) programs.push_back(name_of(program));
    return {list_of(programs), config.program_line, config.run_id.value_or(""), config.interpreter,
            config.command_line};
}

JobReport report_of(const Finish& finish, const AgentConfig& config, const JobHistory& history) {
    JobReport report;
    report.result = result_of(finish.verdict ? &*finish.verdict : nullptr, finish.exit_code);
    report.exit_code = finish.exit_code;
    report.job = job_name(config);
    report.verdict = finish.verdict;
    const bool own_reason = !finish.verdict || !finish.why.empty();
    report.reason = own_reason ? finish.why : finish.verdict->reason;
    report.hint = own_reason ? finish.remedy : advice(*finish.verdict, report.job);
    report.run_id = history.run_id();
    report.host = config.node_name;
    report.groups = history.groups();
    report.time = history.time();
    report.names_steps = history.names_steps();
    report.began_at = config.began_at;
    return report;
}

json::object to_json(const JobReport& report) {
    json::object object{
        {"version", kReportVersion},
        {"result", json::string_view(report.result.data(), report.result.size())},
        {"exit_code", report.exit_code},
        {"reason", text_json(report.reason)},
        {"hint", text_json(report.hint)},
        {"diagnosis", ""},
        {"signal_name", nullptr},
        {"program", text_json(report.job.program)},
        {"command", text_json(report.job.started)},
        {"interpreter", name_or_null(report.job.interpreter)},
        {"run_id", name_or_null(report.run_id)},
        {"host", name_or_null(report.host)},
        {"node_rank", nullptr},
        {"nodes", nullptr},
        {"world_size", nullptr},
        {"generation", nullptr},
        {"restarts", nullptr},
        {"max_restarts", nullptr},
        {"culprit", nullptr},
        {"first_victim", nullptr},
        {"error_file", nullptr},
        {"also_failed", json::array()},
        {"victims", json::array()},
    };
    if (report.result == "interrupted") object["signal_name"] = signal_name(report.exit_code - exit_code::kSignalBase);
    if (report.verdict) add_verdict(object, report);
    add_groups(object, report.groups);
    add_account(object, report.time, report.names_steps);
    object["began_at"] = utc_text(report.began_at);
    object["ended_at"] = utc_text(report.ended_at);
    return object;
}

std::string report_text(const json::object& report) { return json_text(report) + "\n"; }

ResultFile report_file(const std::string& path) {
    return {path, fmt::format("the report {} (--report)", path), "Name a file that this user can create."};
}

}  // namespace ddprun::agent

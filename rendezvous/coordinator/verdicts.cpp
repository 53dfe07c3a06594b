#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>

#include "common/exit_codes.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

std::string seconds(std::chrono::milliseconds duration) {
    return fmt::format("{:.12g} s", std::chrono::duration<double>(duration).count());
}

namespace {

/// The agent had no process, descriptor or memory to start it with, or a bug: the program was never asked.
bool node_is_to_blame(const FailureReport& failure) {
    const ExitStatus& status = failure.status;
    return failure.pid == 0 && status.kind == ExitStatus::Kind::kExited &&
           (status.number == exit_code::kInfrastructure || status.number == exit_code::kInternal);
}

bool never_started(const FailureReport& failure) {
    const ExitStatus& status = failure.status;
    return failure.pid == 0 && status.kind == ExitStatus::Kind::kExited &&
           (status.number == exit_code::kProgramNotFound || status.number == exit_code::kCannotExecute);
}

constexpr std::size_t kMaxRanksNamed = 4;

}  // namespace

std::string describe_end(const FailureReport& failure) {
    std::string text = to_string(failure.status);
    if (failure.status.kind == ExitStatus::Kind::kExited) {  // a script, whose program that was
        if (failure.oom == OomKill::kYes) text += ": the kernel's out-of-memory killer has killed a process of it";
        return text;
    }
    if (failure.oom == OomKill::kYes) text += " by the kernel's out-of-memory killer";
    if (failure.oom == OomKill::kMaybe) text += ", perhaps by the kernel's out-of-memory killer";
    return text;
}

std::string describe(const FailureReport& failure) {
    const int rank = number(failure.rank);
    std::string text = fmt::format("rank {} on {} {}", rank, failure.host, describe_end(failure));
    if (never_started(failure)) text = fmt::format("rank {} on {} could not be started", rank, failure.host);
    if (node_is_to_blame(failure)) text = fmt::format("the agent on {} could not start rank {}", failure.host, rank);
    const std::string_view first_line = std::string_view(failure.message).substr(0, failure.message.find('\n'));
    if (!first_line.empty()) text.append(": ").append(first_line);
    return text;
}

std::string finished_before(const State& state) {
    std::map<int, int> runs;  // first rank → how many from there on
    TimePoint first = state.now;
    for (const auto& [rank, at] : state.group.finished) {
        runs[number(rank)] = 1;
        first = std::min(first, at);
    }
    for (const auto& [id, member] : state.group.members) {
        const auto node = state.nodes.find(id);
        if (!member.succeeded || node == state.nodes.end()) continue;
        runs[member.assignment.rank_base] = node->second.join.slots;
        first = std::min(first, member.succeeded_at);
    }
    if (runs.empty()) return "";
    std::string names;
    std::size_t named = 0;
    int ranks = 0;
    for (const auto& [base, count] : runs) {
        ranks += count;
        if (++named > kMaxRanksNamed) continue;
        names += fmt::format("{}{}", named > 1 ? ", " : "", base);
        if (count > 1) names += fmt::format("-{}", base + count - 1);
    }
    if (named > kMaxRanksNamed) names += ", …";
    return fmt::format("rank{} {} had already exited with code 0, {}{} before", ranks > 1 ? "s" : "", names,
                       ranks > 1 ? "the first " : "", how_long(state.now - first));
}

std::string describe(const Departure& departure) {
    return fmt::format("node {} was interrupted by {}", departure.host, signal_name(departure.signal));
}

Verdict success_verdict() { return {.reason = "every worker exited with code 0", .culprit = {}}; }

Verdict failure_verdict(const Cause& cause, int max_restarts) {
    const FailureReport& culprit = *cause.failure;
    // A report of a failure with code 0 can only be a mistake of the reporter's; the job must not pass for a success.
    const int code = culprit.status.success() ? 1 : culprit.status.exit_code();
    return {.outcome = node_is_to_blame(culprit) ? Outcome::kInfrastructure : Outcome::kWorkerFailed,
            .exit_code = code,
            .reason = max_restarts > 0
                          ? fmt::format("{}; no restart left (--max-restarts {})", cause.reason, max_restarts)
                          : cause.reason,
            .culprit = culprit};
}

Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape, const Group* stopped) {
    std::string reason = describe(departure);
    if (nodes_left > 0) reason += fmt::format(", which ends the job (--nnodes {})", nnodes(shape));
    if (stopped != nullptr && !stopped->members.empty()) {
        const int workers = stopped->members.begin()->second.assignment.world_size;
        const std::size_t nodes = stopped->members.size();
        reason += fmt::format(": {} worker{} stopped on {} node{}", workers, workers == 1 ? "" : "s", nodes,
                              nodes == 1 ? "" : "s");
    }
    return {.outcome = Outcome::kStopped,
            .exit_code = exit_code::kSignalBase + departure.signal,
            .reason = std::move(reason),
            .culprit = {}};
}

Verdict infrastructure_verdict(std::string reason) {
    return {.outcome = Outcome::kInfrastructure,
            .exit_code = exit_code::kInfrastructure,
            .reason = std::move(reason),
            .culprit = {}};
}

void finish(Transition& t, Verdict verdict) {
    assert(t.state.phase == Phase::kGathering && "whoever ends a group closes its store first");
    verdict.restarts = t.state.restarts_spent;
    t.state.phase = Phase::kFinished;
    t.state.verdict = verdict;
    t.say("the job is over: " + verdict.reason);
    for (const auto& [id, node] : t.state.nodes) {
        if (node.link == Link::kConnected) t.send(id, Finished{verdict});
    }
    t.actions.push_back(FinishJob{std::move(verdict)});
}

}  // namespace ddprun::coordinator

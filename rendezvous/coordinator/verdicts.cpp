#include "rendezvous/coordinator/verdicts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "common/exit_codes.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"
#include "rendezvous/coordinator/hosts.hpp"

namespace ddprun::coordinator {

namespace {

/// Returns whether the agent could not start the worker: it had no process, descriptor or memory left, or a bug.
bool is_node_failure(const FailureReport& failure) {
    const ExitStatus& status = failure.status;
    return failure.pid == 0 && status.kind == ExitStatus::Kind::kExited &&
           (status.number == exit_code::kInfrastructure || status.number == exit_code::kInternal);
}

bool never_started(const FailureReport& failure) {
    const ExitStatus& status = failure.status;
    return failure.pid == 0 && status.kind == ExitStatus::Kind::kExited &&
           (status.number == exit_code::kProgramNotFound || status.number == exit_code::kCannotExecute);
}

bool restarts_any_role(const State& state) {
    return std::ranges::any_of(state.roles, [](const auto& entry) { return entry.second.max_restarts > 0; });
}

constexpr std::size_t kMaxRanksNamed = 4;

/// Adds a rank that is higher than those before it.
void add_rank(std::vector<RankRun>& runs, int rank) {
    if (!runs.empty() && runs.back().first + runs.back().count == rank)
        ++runs.back().count;
    else if (runs.size() < kMaxFailedRuns)
        runs.push_back({rank, 1});
}

}  // namespace

bool forbids_restart(const FailureReport& failure) {
    return failure.pid != 0 && failure.status == ExitStatus{ExitStatus::Kind::kExited, exit_code::kDoNotRequeue};
}

std::vector<FailedRanks> also_failed(const std::map<Rank, FailedWorker>& failed, Rank culprit) {
    std::vector<FailedRanks> kinds;
    for (const auto& [rank, worker] : failed) {
        if (rank == culprit) continue;
        auto kind = std::ranges::find_if(kinds, [&worker = worker](const FailedRanks& known) {
            return known.status == worker.status && known.oom == worker.oom && known.victims == worker.victim;
        });
        if (kind == kinds.end()) {
            if (kinds.size() == kMaxFailedKinds) continue;
            kind = kinds.insert(kind, {{}, worker.status, worker.oom, worker.victim});
        }
        add_rank(kind->ranks, number(rank));
    }
    return kinds;
}

std::string describe(const FailureReport& failure) {
    const int rank = number(failure.rank);
    std::string text = fmt::format("rank {} on {} {}", rank, failure.host, describe_end(failure));
    if (never_started(failure)) text = fmt::format("rank {} on {} could not be started", rank, failure.host);
    if (is_node_failure(failure)) text = fmt::format("the agent on {} could not start rank {}", failure.host, rank);
    const std::string_view first_line = std::string_view(failure.message).substr(0, failure.message.find('\n'));
    if (!first_line.empty()) text.append(": ").append(first_line);
    return text;
}

std::string finished_before(const State& state) {
    std::map<int, int> runs;  // first rank → number of ranks from there on
    TimePoint first = state.now;
    for (const auto& [rank, at] : state.group.finished) {
        runs[number(rank)] = 1;
        first = std::min(first, at);
    }
    for (const auto& [id, member] : state.group.members) {
        const auto node = state.nodes.find(id);
        if (!member.succeeded || node == state.nodes.end()) continue;
        runs[member.assignment.rank_base] = slots_of(node->second.join);
        first = std::min(first, member.succeeded_at);
    }
    if (runs.empty()) return "";
    std::string names;
    std::size_t named = 0;
    int ranks = 0;
    for (const auto& [base, count] : runs) {
        ranks += count;
        if (++named > kMaxRanksNamed) continue;
        names += (named > 1 ? ", " : "") + range_of(base, base + count - 1);
    }
    if (named > kMaxRanksNamed) names += ", …";
    return fmt::format("{} {} had already exited with code 0, {}{} before", inflect(ranks, "rank", "ranks"), names,
                       inflect(ranks, "", "the first "), duration_text(state.now - first));
}

std::string describe(const Departure& departure) {
    return fmt::format("{} was interrupted by {}", name_node(departure.host), signal_name(departure.signal));
}

Verdict success_verdict() { return {.reason = "every worker exited with code 0", .culprit = {}}; }

Verdict stopped_at_notice_verdict(const State& state) {
    return {.outcome = Outcome::kPreempted,
            .exit_code = exit_code::kPreempted,
            .reason = fmt::format("preempted: {}; every worker has stopped by itself, and the job may be started again",
                                  state.preemption->message.reason),
            .culprit = {}};
}

Verdict preempted_verdict(const State& state) {
    const std::string& why = state.preemption->message.reason;
    const std::string reason = state.groups_started == 0
                                   ? fmt::format("preempted before a worker ran: {}", why)
                                   : fmt::format("preempted: {}; before the next start of the workers{}{}", why,
                                                 state.cause.reason.empty() ? "" : ": ", state.cause.reason);
    return {.outcome = Outcome::kPreempted, .exit_code = exit_code::kPreempted, .reason = reason, .culprit = {}};
}

Verdict overdue_verdict(const State& state, const std::vector<int>& ranks) {
    return {.outcome = Outcome::kPreempted,
            .exit_code = exit_code::kPreempted,
            .reason = fmt::format("preempted: {}; {} had not ended at the deadline, and {} stopped",
                                  state.preemption->message.reason, name_rank_ranges(ranks),
                                  inflect(ranks.size(), "was", "were")),
            .culprit = {}};
}

std::string why_no_restart(const State& state) {
    const FailureReport& culprit = *state.cause.failure;
    const int max_restarts = state.roles.at(culprit.role).max_restarts;
    const std::string whose = of_role(state, culprit.role);
    if (forbids_restart(culprit))
        return fmt::format("code {} means that another attempt is useless", exit_code::kDoNotRequeue);
    if (max_restarts > 0) return fmt::format("no restart left (--max-restarts {}{})", max_restarts, whose);
    return restarts_any_role(state) ? fmt::format("no restart (--max-restarts 0{})", whose) : "";
}

Verdict failure_verdict(const State& state) {
    FailureReport culprit = *state.cause.failure;
    const std::string whose = of_role(state, culprit.role);
    if (whose.empty()) culprit.role.clear();
    // A reported failure with code 0 can only be a bug of the agent. The job must not count as a success.
    const int code = culprit.status.success() ? 1 : culprit.status.exit_code();
    std::string reason = state.cause.reason;
    if (const std::string why = why_no_restart(state); !why.empty()) reason += fmt::format("; {}", why);
    const bool one_line = culprit.message.find('\n') == std::string::npos;
    return {.outcome = is_node_failure(culprit) ? Outcome::kInfrastructure : Outcome::kWorkerFailed,
            .exit_code = code,
            .reason = std::move(reason),
            .culprit = std::move(culprit),
            .names_message = one_line};
}

Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape, const Group* stopped) {
    std::string reason = describe(departure);
    if (nodes_left > 0) reason += fmt::format(", which ends the job (--nnodes {})", nnodes(shape));
    if (stopped != nullptr && !stopped->members.empty()) {
        const int workers = stopped->members.begin()->second.assignment.world_size;
        const std::size_t nodes = stopped->members.size();
        reason += fmt::format(": {} stopped on {}", counted(workers, "worker"), counted(nodes, "node"));
    }
    if (!departure.failure.empty()) reason += fmt::format("; before the signal: {}", departure.failure);
    return {.outcome = Outcome::kStopped,
            .exit_code = exit_code::kSignalBase + departure.signal,
            .reason = std::move(reason),
            .culprit = {}};
}

Verdict daemon_stopped_verdict(int signal) {
    return {
        .outcome = Outcome::kStopped,
        .exit_code = exit_code::kSignalBase + signal,
        .reason = fmt::format("the job was interrupted by {}, which its rendezvous daemon got", signal_name(signal)),
        .culprit = {}};
}

Verdict useless_restarts_verdict(const State& state, const std::string& host) {
    return {.outcome = Outcome::kInfrastructure,
            .exit_code = exit_code::kDoNotRequeue,
            .reason = fmt::format("{}; {} has been lost {} times within {} of a start, and the job cannot do "
                                  "without it (--nnodes {})",
                                  state.cause.reason, name_node(host), state.hosts.at(host).early_losses,
                                  seconds_text(kProgress), nnodes(*state.shape)),
            .culprit = {},
            .hint = fmt::format("Look for what ends the ddprun of {} (its output, `dmesg` there), or start the job on "
                                "other nodes",
                                host)};
}

Verdict outages_verdict(const State& state) {
    return infrastructure_verdict(
        fmt::format("{}; many nodes were cut off at once, as within {} of each of the newest {} starts",
                    state.cause.reason, seconds_text(kProgress), state.early_outages),
        "Look for what interrupts the network between the nodes, then start the same command again");
}

Verdict link_verdict(const State& state, std::string_view why) {
    const Diagnosis& diagnosis = state.group.diagnosis;
    Verdict verdict = failure_verdict(state);
    verdict.outcome = Outcome::kInfrastructure;
    verdict.exit_code = exit_code::kInfrastructure;
    verdict.reason = diagnosis.text;
    if (!why.empty()) verdict.reason.append("; ").append(why);
    verdict.names_message = false;
    verdict.hint = diagnosis.hint;
    verdict.first_victim = true;
    return verdict;
}

Verdict infrastructure_verdict(std::string reason, std::string hint) {
    return {.outcome = Outcome::kInfrastructure,
            .exit_code = exit_code::kInfrastructure,
            .reason = std::move(reason),
            .culprit = {},
            .hint = std::move(hint)};
}

}  // namespace ddprun::coordinator

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "common/exit_codes.hpp"
#include "rendezvous/coordinator/transition.hpp"

namespace ddprun::coordinator {

std::string seconds(std::chrono::milliseconds duration) {
    return fmt::format("{:.12g} s", std::chrono::duration<double>(duration).count());
}

std::string describe(const FailureReport& failure) {
    std::string text = fmt::format("rank {} on {} {}", number(failure.rank), failure.host, to_string(failure.status));
    const std::string_view first_line = std::string_view(failure.message).substr(0, failure.message.find('\n'));
    if (!first_line.empty()) text.append(": ").append(first_line);
    return text;
}

std::string describe(const Departure& departure) {
    return fmt::format("node {} was told to stop ({})", departure.host, signal_name(departure.signal));
}

Verdict success_verdict() { return {.reason = "every worker exited with code 0", .culprit = {}}; }

Verdict failure_verdict(const FailureReport& culprit, int max_restarts) {
    // A report of a failure with code 0 can only be a mistake of the reporter's; the job must not pass for a success.
    const int code = culprit.status.success() ? 1 : culprit.status.exit_code();
    return {.outcome = Outcome::kWorkerFailed,
            .exit_code = code,
            .reason = fmt::format("{}; no restart left (--max-restarts {})", describe(culprit), max_restarts),
            .culprit = culprit};
}

Verdict stopped_verdict(const Departure& departure, int nodes_left, const JobShape& shape) {
    std::string reason = describe(departure);
    if (nodes_left > 0) {
        reason += fmt::format(", and the {} left {} too few for --nnodes {}", nodes_left == 1 ? "node" : "nodes",
                              nodes_left == 1 ? "is" : "are", nnodes(shape));
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
    verdict.restarts = std::max(0, t.state.groups_started - 1);
    t.state.phase = Phase::kFinished;
    t.state.verdict = verdict;
    t.say("the job is over: " + verdict.reason);
    for (const auto& [id, node] : t.state.nodes) {
        if (node.link == Link::kConnected) t.send(id, Finished{verdict});
    }
    t.actions.push_back(FinishJob{std::move(verdict)});
}

}  // namespace ddprun::coordinator

#include "tests/sim/tally.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ddprun::sim {

using protocol::Outcome;

void Tally::add(const SimCluster& cluster) {
    ++runs;
    if (const auto& verdict = cluster.checker().verdict()) {
        ++outcomes[verdict->outcome];
        restarts += std::max(0, cluster.checker().groups() - 1);
        if (verdict->reason.find("had not ended at the deadline") != std::string::npos) ++overdue;
    }
    pauses += cluster.checker().pauses();
    refusals += cluster.refusals();
    notified += cluster.notified();
    agreements += cluster.agreements();
    freezes += cluster.freezes();
    stuck += cluster.stuck();
    orders += cluster.orders();
    notices += cluster.notices();
    preempted_workers += cluster.preempted_workers();
    requests += cluster.inquiry_checker().requests();
    answers += cluster.inquiry_checker().answers();
    diagnoses += cluster.inquiry_checker().diagnoses();
    conclusions += cluster.inquiry_checker().conclusions();
    most_starts = std::max(most_starts, cluster.checker().most_starts());
}

std::string Tally::too_seldom() const {
    std::string text;
    const auto expect = [&](const char* what, int count, int expected) {
        if (count <= expected)
            text += fmt::format("{} {} in {} runs, more than {} expected\n", count, what, runs, expected);
    };
    for (const Outcome outcome : {Outcome::kSucceeded, Outcome::kWorkerFailed, Outcome::kStopped,
                                  Outcome::kInfrastructure, Outcome::kPreempted}) {
        const auto found = outcomes.find(outcome);
        expect("ends of one kind", found == outcomes.end() ? 0 : found->second, runs / 50);
    }
    expect("restarts", restarts, runs / 6);
    expect("pauses", pauses, runs / 100);
    expect("refusals", refusals, runs / 30);
    expect("freezes", freezes, runs / 8);
    expect("stuck nodes", stuck, runs / 100);
    expect("orders", orders, runs / 50);
    expect("notified nodes", notified, runs / 20);
    expect("agreements on a step", agreements, runs / 20);
    expect("notices", notices, runs / 10);
    expect("deadlines that passed", overdue, runs / 300);
    expect("workers that exited with 75", preempted_workers, runs / 10);
    expect("requests", requests, runs);
    expect("answers", answers, runs / 2);
    expect("diagnoses", diagnoses, runs / 4);
    expect("conclusions", conclusions, runs / 10);
    return text;
}

std::string Tally::text() const {
    const auto ended = [this](Outcome outcome) {
        const auto found = outcomes.find(outcome);
        return found == outcomes.end() ? 0 : found->second;
    };
    return fmt::format(
        "{} runs: {} succeeded, {} failed, {} stopped, {} infrastructure, {} preempted; {} restarts ({} within a "
        "minute at most), {} "
        "pauses, {} refusals, {} notified, {} agreements, {} freezes, {} stuck, {} orders, {} notices, {} deadlines, "
        "{} workers with 75, {} requests, {} answers, {} "
        "diagnoses, {} "
        "conclusions",
        runs, ended(Outcome::kSucceeded), ended(Outcome::kWorkerFailed), ended(Outcome::kStopped),
        ended(Outcome::kInfrastructure), ended(Outcome::kPreempted), restarts, most_starts, pauses, refusals, notified,
        agreements, freezes, stuck, orders, notices, overdue, preempted_workers, requests, answers, diagnoses,
        conclusions);
}

std::string finding(std::uint64_t seed, const SimCluster& cluster, std::size_t lines) {
    if (cluster.broken_invariant().empty()) return {};
    return fmt::format("seed {}: {}\n{}\n{}", seed, cluster.broken_invariant(), cluster.scenario(),
                       cluster.last_lines(lines));
}

}  // namespace ddprun::sim

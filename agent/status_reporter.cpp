#include "agent/status_reporter.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <utility>

#include "agent/config/destinations.hpp"
#include "agent/output/log_files.hpp"
#include "agent/verdict_text.hpp"
#include "common/exit_codes.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "common/text/utf8.hpp"

namespace ddprun::agent {
namespace {

using protocol::Assignment;

/// A wait is reported when it has lasted this long. Emulated nodes start together, and slower than a single one.
constexpr std::chrono::seconds kLongWait{1};
constexpr std::chrono::seconds kLongEmulatedWait{5};
/// A node counts as lost a second after its connection has ended; only then is it known that workers failed because of
/// that.
constexpr std::chrono::seconds kReasonIsSure{2};

/// Each of several hosts has a daemon of its own at such an endpoint, and all of them wait.
constexpr const char* kLoopbackHint =
    "a loopback address is another host on each node: if the nodes are on several hosts, pass the name of one of them "
    "to all by --rdzv-endpoint";

/// Returns the likely reason why this node waits alone; empty: none is known.
std::string apart_hint(const AgentConfig& config) {
    if (config.max_nodes == 1 || config.emulated) return "";
    return may_leave_host(config.endpoint) ? config.apart_hint : kLoopbackHint;
}

/// The line about a shorter job would say little.
constexpr std::chrono::seconds kLongEnough{5};

/// Returns the line about the goodput of this node; empty: there is nothing to learn from it.
std::string goodput_line(const JobReport& report) {
    if (report.groups.empty() || !report.time || wall_time(*report.time) < kLongEnough) return "";
    const bool restarted = report.groups.back().assignment.restart_count > 0;
    return report.names_steps || restarted ? goodput_text(*report.time, report.names_steps) : "";
}

/// Returns the text that the launcher of emulated nodes prints about the end of the job; empty: none.
std::string final_text(const JobReport& report, CulpritStderr shown) {
    if (!report.verdict) return "";
    const protocol::Verdict& verdict = *report.verdict;
    if (verdict.outcome != protocol::Outcome::kSucceeded && !needs_box(verdict, report.job))
        return fmt::format("[ddprun] {}\n", printable(verdict.reason));
    return format_verdict(verdict, report.job, shown);
}

}  // namespace

StatusReporter::StatusReporter(boost::asio::io_context& io, const AgentConfig& config, Console& console)
    : config_(config),
      console_(console),
      waiting_line_(io, config.emulated ? kLongEmulatedWait : kLongWait),
      stop_line_(io, kReasonIsSure) {}

void StatusReporter::report_reason(const worker_group::Step& step) {
    if (step.supersedes_reasons) stop_line_.drop();
    if (step.reason.empty()) return;
    const std::string line = tag() + step.reason;
    if (step.outcome_follows)
        stop_line_.set(line, step.reason_until);
    else
        spdlog::info("{}", line);
}

void StatusReporter::report_wait(const std::string& reason, bool needs_nodes) {
    stop_line_.drop();  // the daemon sends it to a node whose workers have ended; it contains the cause of the stop
    apart_hint_ = needs_nodes && !node_rank_ ? apart_hint(config_) : "";
    waiting_line_.set(fmt::format("{}waiting at {}: {}{}{}", tag(), to_string(config_.endpoint), reason,
                                  apart_hint_.empty() ? "" : "; ", apart_hint_));
}

void StatusReporter::add_hint(protocol::Verdict& verdict) const {
    const bool too_few = verdict.outcome == protocol::Outcome::kInfrastructure && !node_rank_;
    if (!too_few || apart_hint_.empty() || !verdict.hint.empty()) return;
    verdict.hint = apart_hint_;
    verdict.hint.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(verdict.hint.front())));
}

void StatusReporter::report_stop_wait(const std::string& text) {
    stop_line_.drop();
    if (!config_.emulated) spdlog::info("{}{}", tag(), text);
}

void StatusReporter::report_detail(const std::string& text) const { spdlog::debug("{}{}", tag(), text); }

void StatusReporter::report_lost_notification(int signal) const {
    spdlog::warn(
        "{}{} reached the workers of this node only: the connection to the rendezvous daemon is interrupted. Send it "
        "to the ddprun of each other node",
        tag(), signal_name(signal));
}

void StatusReporter::report_problem(const std::string& text) const { spdlog::warn("{}{}", tag(), text); }

void StatusReporter::report_start(const Assignment& assignment) {
    node_rank_ = assignment.node_rank;
    const bool first = number(assignment.node_rank) == 0;
    waiting_line_.drop();
    stop_line_.drop();  // this node's own view of the cause: the assignment contains the daemon's, which knows more
    report_ranks(assignment);
    report_absent_ranks(assignment);
    report_other_number(assignment);
    if (assignment.restart_count == 0 || (config_.emulated && !first)) return;
    const int workers = assignment.world_size;
    const int nodes = assignment.node_count;
    // Only failures are counted against --max-restarts: joining and lost nodes are not.
    std::string what = "started again";
    if (const auto& restart = assignment.restart) {
        what = fmt::format("restart {} of {}{}{}", restart->number, restart->max,
                           restart->role.empty() ? "" : " of role ", restart->role);
    }
    spdlog::info("{}: {} on {}{}", what, counted(workers, "worker"), counted(nodes, "node"),
                 assignment.reason.empty() ? "" : fmt::format(" ({})", assignment.reason));
}

/// Warns of ranks in --ranks-filter that the job does not have: of all of them if it has none, because nothing is
/// shown; else if no further node can join, because that may have any number of workers.
void StatusReporter::report_absent_ranks(const Assignment& assignment) {
    const RankRanges& shown = config_.output.console_job_ranks;
    const int size = assignment.world_size;
    RankRanges absent;
    for (const auto& [first, last] : shown)
        if (last >= size) absent.push_back({std::max(first, size), last});
    const bool nothing = std::ranges::all_of(shown, [&](const NumberRange& range) { return range.first >= size; });
    const bool may_grow = assignment.node_count < config_.max_nodes;
    if (absent.empty() || (may_grow && !nothing) || (config_.emulated && number(*node_rank_) != 0)) return;
    const bool one = absent.size() == 1 && absent.front().first == absent.front().last;
    std::string line =
        fmt::format("--ranks-filter: the job has no {} {} (world size {}){}", one ? "rank" : "ranks",
                    join_ranges(absent, ","), size, nothing ? ", so that nothing its workers print is shown" : "");
    if (line == absent_ranks_line_) return;
    spdlog::warn("{}{}", tag(), line);
    absent_ranks_line_ = std::move(line);
}

void StatusReporter::report_log_folder(const std::string& folder) {
    const bool reports = number(*node_rank_) == 0 || (config_.output.temporary && !config_.emulated);
    if (!reports || log_folder_reported_ || !redirects_to_files(config_.output, config_.slots())) return;
    log_folder_reported_ = true;
    spdlog::info("{}redirected output is in {} (gen-<generation>/rank-<rank>.out and .err){}",
                 config_.emulated ? "" : tag(), folder,
                 config_.output.temporary ? "; the folder is removed if the job succeeds, --log-dir keeps it" : "");
}

void StatusReporter::report_preemption(const std::string& text) const {
    if (config_.emulated && node_rank_ && number(*node_rank_) != 0) return;
    spdlog::info("{}", text);
}

void StatusReporter::report_job_notice(const std::string& text) {
    if (config_.emulated && node_rank_ && number(*node_rank_) != 0) return;
    spdlog::warn("{} [the operations of all ranks: ddpctl dump --rdzv-endpoint {}]", text, to_string(config_.endpoint));
}

/// Prints that this node has another number than the one that the user gave it.
void StatusReporter::report_other_number(const Assignment& assignment) {
    if (config_.emulated || config_.node_rank_is_hint) return;
    if (!config_.node_rank || *config_.node_rank == number(assignment.node_rank)) return;
    if (std::exchange(other_number_reported_, true)) return;
    const std::string why =
        *config_.node_rank < assignment.node_count
            ? "another node has that number. Pass a different one on each node, or leave the option out"
            : fmt::format("the job runs on {} now", counted(assignment.node_count, "node"));
    spdlog::warn("{}this is node {}, not {} as --node-rank says: {}", tag(), number(assignment.node_rank),
                 *config_.node_rank, why);
}

/// Prints which node this terminal shows, in a job of several terminals, and again when that has changed.
void StatusReporter::report_ranks(const Assignment& assignment) {
    if (config_.max_nodes == 1 || config_.emulated) return;
    const int slots = config_.slots();
    const int last = assignment.rank_base + slots - 1;
    std::string line = fmt::format("this is node {} of {} ({}): ", number(assignment.node_rank), assignment.node_count,
                                   config_.node_name);
    line += fmt::format("{} {} of {}", inflect(slots, "rank", "ranks"), range_of(assignment.rank_base, last),
                        assignment.world_size);
    if (line == ranks_line_) return;
    spdlog::info("{}, generation {}", line, number(assignment.generation));
    ranks_line_ = std::move(line);
}

void StatusReporter::report_end(const Finish& finish, const std::vector<std::string>& left, const JobReport& report) {
    waiting_line_.drop();
    stop_line_.drop();
    if (!left.empty()) {
        spdlog::error("{}{}: pid {}", tag(), finish.why, fmt::join(left, ", "));
    } else if (config_.emulated && finish.interrupted) {
        // The launcher of emulated nodes prints an interruption once for all of them.
        if (!finish.failure.empty()) spdlog::error("{}before the signal: {}", tag(), finish.failure);
    } else if (!finish.why.empty()) {
        const bool has_remedy = !finish.remedy.empty() && !config_.emulated;
        spdlog::error("{}{}{}", tag(), finish.why, has_remedy ? ". " + finish.remedy : "");
    }
    if (config_.emulated)
        send_final_report(final_text(report, stderr_in_box(report.verdict)), finish.exit_code, report);
    else if (report.verdict)
        report_verdict(report);
    const bool is_first = node_rank_ && number(*node_rank_) == 0;
    const std::string goodput = is_first && !config_.emulated ? goodput_line(report) : "";
    if (!goodput.empty()) spdlog::info("{}{}", tag(), goodput);
    report_files_kept(finish.exit_code);
}

/// Prints where this node's temporary files are, unless the launcher removes them or prints that for all nodes.
void StatusReporter::report_files_kept(int exit_code) const {
    const bool started = node_rank_.has_value();
    if (!config_.output.temporary || config_.emulated || !started || exit_code == exit_code::kSuccess) return;
    spdlog::info("{}{}", tag(), files_kept_text(config_.output.log_dir));
}

/// Prints the box with the verdict on the first node and on the culprit's; a line on the others, and on all when the
/// job was stopped on purpose.
void StatusReporter::report_verdict(const JobReport& report) {
    const protocol::Verdict& verdict = *report.verdict;
    const std::string reason = printable(verdict.reason);
    const bool first = !node_rank_ || number(*node_rank_) == 0;
    if (verdict.outcome == protocol::Outcome::kSucceeded) return;
    if (!needs_box(verdict, report.job)) {
        spdlog::error("{}{}", tag(), reason);
    } else if (first || (verdict.culprit && verdict.culprit->host == config_.node_name)) {
        write_block(console_, format_verdict(verdict, report.job, stderr_in_box(report.verdict)),
                    config_.output.timestamps);
    } else if (verdict.exit_code != 0) {
        const bool failed = verdict.outcome != protocol::Outcome::kPreempted;
        spdlog::error("{}{}{}", tag(), failed ? "the job failed: " : "", reason);
    }
}

/// The console has shown the culprit's stderr if it ran on this node, or on another one that shares this console.
CulpritStderr StatusReporter::stderr_in_box(const std::optional<protocol::Verdict>& verdict) const {
    if (!verdict || !verdict->culprit) return CulpritStderr::kQuoted;
    const bool here = config_.emulated || verdict->culprit->host == config_.node_name;
    const bool shown =
        destinations_of(config_.output, verdict->culprit->local_rank, StreamCode::kStderr, verdict->culprit->rank)
            .console &&
        !config_.output.shown && !config_.output.hidden;
    if (!here || !shown) return CulpritStderr::kQuoted;
    const bool alone = !config_.emulated && (config_.slots() == 1 || config_.output.console_ranks.size() == 1);
    return alone ? CulpritStderr::kShownAbove : CulpritStderr::kShownAmongOthers;
}

void StatusReporter::send_final_report(const std::string& text, int exit_code, const JobReport& report) const {
    if (!config_.final_report) return;
    boost::json::object record{{"text", text}, {"node", config_.node_name}, {"exit_code", exit_code}};
    if (!report.groups.empty()) {
        const GroupTimes& latest = report.groups.back();
        record["generation"] = number(latest.assignment.generation);
        record["goodput"] = goodput_line(report);
        if (latest.stop_began_at) record["stop_began_at"] = latest.stop_began_at->time_since_epoch().count();
    }
    if (!config_.report.empty()) record["report"] = to_json(report);
    const std::string bytes = boost::json::serialize(record) + '\0';
    // The file is in memory and open for appending: one write puts the report beside those of other nodes. If it fails,
    // the launcher still has the exit code to report.
    [[maybe_unused]] const ssize_t ignored = ::write(config_.final_report.get(), bytes.data(), bytes.size());
}

}  // namespace ddprun::agent

#include "agent/announcer.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "agent/output/text.hpp"
#include "agent/verdict_text.hpp"
#include "common/exit_codes.hpp"

namespace ddprun::agent {
namespace {

using coordinator::Assignment;

/// Nodes that are emulated start together, and slower than one alone.
constexpr std::chrono::seconds kWaitIsLong{1};
constexpr std::chrono::seconds kEmulatedWaitIsLong{5};
/// A node counts as lost a second after its connection has ended; only then is it known that workers failed of that.
constexpr std::chrono::seconds kReasonIsSure{2};

/// Whether what a step says about `event` will be said again, with its outcome, when the stop that it begins is over.
bool told_at_the_end(const Event& event, const State& after) {
    return std::holds_alternative<WorkerExited>(event) || std::holds_alternative<SpawnFailed>(event) ||
           std::holds_alternative<AbortReceived>(event) || std::holds_alternative<DaemonLost>(event) ||
           (std::holds_alternative<StopSignal>(event) && !after.killed);
}

}  // namespace

Announcer::Announcer(boost::asio::io_context& io, const AgentConfig& config, Console& console)
    : config_(config),
      console_(console),
      waiting_line_(io, config.emulated ? kEmulatedWaitIsLong : kWaitIsLong),
      stop_line_(io, kReasonIsSure) {}

void Announcer::tell_reason(const Event& event, const State& after, const std::string& reason) {
    if (reason.empty()) return;
    const std::string line = tag() + reason;
    if (std::holds_alternative<StopSignal>(event)) stop_line_.drop();  // another matter than what was said
    if (told_at_the_end(event, after))
        stop_line_.set(line);
    else
        spdlog::info("{}", line);
}

void Announcer::tell_wait(const coordinator::Waiting& waiting) {
    waiting_line_.set(fmt::format("{}waiting at {}: {}", tag(), to_string(config_.endpoint), waiting.reason));
}

void Announcer::tell_start(const Assignment& assignment) {
    node_rank_ = assignment.node_rank;
    const bool first = number(assignment.node_rank) == 0;
    waiting_line_.drop();
    stop_line_.drop();  // what this node knew of the cause; the daemon knows better by now
    tell_place(assignment);
    if (assignment.restart_count == 0 || (config_.emulated && !first)) return;
    const int workers = assignment.world_size;
    const int nodes = assignment.node_count;
    // Nodes that come or go spend none of --max-restarts.
    const std::string what = assignment.restart > 0
                                 ? fmt::format("restart {} of {}", assignment.restart, assignment.max_restarts)
                                 : "started again";
    spdlog::info("{}: {} worker{} on {} node{}{}", what, workers, workers == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
                 assignment.reason.empty() ? "" : fmt::format(" ({})", assignment.reason));
}

void Announcer::tell_job_notice(const std::string& text) {
    if (config_.emulated && node_rank_ && number(*node_rank_) != 0) return;
    spdlog::warn("{} [all ranks: ddpctl dump --rdzv-endpoint {}]", text, to_string(config_.endpoint));
}

/// In a job of several terminals each is told which one it is, and told again when that has changed.
void Announcer::tell_place(const Assignment& assignment) {
    if (config_.max_nodes == 1 || config_.emulated) return;
    const int last = assignment.rank_base + config_.slots - 1;
    std::string place = fmt::format("this is node {} of {} ({}): ", number(assignment.node_rank), assignment.node_count,
                                    config_.node_name);
    place += config_.slots == 1 ? fmt::format("rank {}", last) : fmt::format("ranks {}-{}", assignment.rank_base, last);
    place += fmt::format(" of {}", assignment.world_size);
    if (place == place_) return;
    spdlog::info("{}, generation {}", place, number(assignment.generation));
    place_ = std::move(place);
}

void Announcer::tell_end(const Finish& finish, const State& state, const std::vector<pid_t>& left) {
    waiting_line_.drop();
    stop_line_.drop();
    const bool interrupted = state.stop_signal && finish.exit_code == exit_code::kSignalBase + *state.stop_signal;
    if (!left.empty()) {
        spdlog::error("{}{}: pids {}", tag(), finish.why, fmt::join(left, ", "));
    } else if (!finish.why.empty() && !(config_.emulated && interrupted)) {
        // Of emulated nodes the launcher says it, once for all.
        const bool has_remedy = !finish.remedy.empty() && !config_.emulated;
        spdlog::error("{}{}{}", tag(), finish.why, has_remedy ? ". " + finish.remedy : "");
    }
    if (finish.verdict) tell_verdict(*finish.verdict);
}

/// One box for the job, not one per node: the first node prints it, and the one that it is about. The others leave it
/// at a line, and so do all when somebody ended the job on purpose.
void Announcer::tell_verdict(const coordinator::Verdict& verdict) {
    const std::string program = config_.program_name.empty()
                                    ? std::filesystem::path(config_.command.at(0)).filename().string()
                                    : config_.program_name;
    const std::string box = format_verdict(verdict, {program, config_.program_line, config_.run_id.value_or("")});
    const bool stopped = verdict.outcome == coordinator::Outcome::kStopped;
    const std::string reason = printable(verdict.reason, verdict.reason.size());
    if (config_.emulated) return leave_last_words(stopped ? fmt::format("[ddprun] {}\n", reason) : box);
    const bool first = !node_rank_ || number(*node_rank_) == 0;
    if (stopped) {
        spdlog::error("{}{}", tag(), reason);
    } else if (first || (verdict.culprit && verdict.culprit->host == config_.node_name)) {
        console_.write(Console::Stream::kErr, Console::kAgent, {box, true});
    } else if (verdict.exit_code != 0) {
        spdlog::error("{}the job failed: {}", tag(), reason);
    }
}

void Announcer::leave_last_words(std::string text) const {
    if (text.empty() || !config_.last_words) return;
    std::erase(text, '\0');
    text.push_back('\0');
    // To a file in memory that is open for appending: in one piece, beside those of other nodes. Without it the
    // launcher has nothing but the exit code to tell.
    [[maybe_unused]] const ssize_t ignored = ::write(config_.last_words.get(), text.data(), text.size());
}

}  // namespace ddprun::agent

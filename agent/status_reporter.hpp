#pragma once
// StatusReporter: prints this node's status lines to the console: its ranks, what it waits for, why workers are
// stopped, how the job ended. Lines about states that are soon over are suppressed. Owned by Agent, called by its loop
// and perform(); one thread.

#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/delayed_line.hpp"
#include "agent/group/worker_group.hpp"
#include "agent/job_report.hpp"
#include "agent/output/console.hpp"
#include "agent/verdict_text.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class StatusReporter {
public:
    /// `config` and `console` outlive this object. The name in `config` may change: the job gives this node its own.
    StatusReporter(boost::asio::io_context& io, const AgentConfig& config, Console& console);

    /// Prints the reason of a step, if there is one; later, or not at all, if its outcome follows.
    void report_reason(const worker_group::Step& step);
    /// Prints why the job cannot start yet, once that has lasted. `needs_nodes`: fewer have joined than it needs.
    void report_wait(const std::string& reason, bool needs_nodes = false);
    /// Adds to the verdict of a job that never had enough nodes the likely reason, if the wait for them has shown one.
    void add_hint(protocol::Verdict& verdict) const;
    /// Prints that the workers have notice of a preemption; of several emulated nodes one prints it.
    void report_preemption(const std::string& text) const;
    /// Prints a notice about the whole job; of several emulated nodes, which share a terminal, one prints it.
    void report_job_notice(const std::string& text);
    /// Prints the processes that a stop by a signal waits for. Of emulated nodes the launcher does so, once for all.
    void report_stop_wait(const std::string& text);
    /// Prints a line with LOGLEVEL=debug.
    void report_detail(const std::string& text) const;
    /// Prints that a signal for the workers of all nodes could not be forwarded.
    void report_lost_notification(int signal) const;
    /// Prints a warning about this node: its connection, its files, its workers' processes.
    void report_problem(const std::string& text) const;
    /// Prints which node this is, and that a restart begins.
    void report_start(const protocol::Assignment& assignment);
    /// Prints once in which folder redirected output is: on the first node, and on each one that has a temporary folder
    /// of its own.
    void report_log_folder(const std::string& folder);
    /// Prints how the job, or this node, ended. `left`: processes that survive SIGKILL. An emulated node leaves it to
    /// its launcher instead, as one JSON object, {"text": what is printed, "generation": of its latest workers,
    /// "stop_began_at": when their stop began, "report": that of --report}, and a zero byte.
    void report_end(const Finish& finish, const std::vector<std::string>& left, const JobReport& report);

    /// Returns the node's name, as the beginning of a status line of a job of several nodes; else nothing.
    [[nodiscard]] std::string tag() const { return config_.max_nodes == 1 ? "" : config_.node_name + ": "; }

private:
    void report_files_kept(int exit_code) const;
    void report_ranks(const protocol::Assignment& assignment);
    void report_absent_ranks(const protocol::Assignment& assignment);
    void report_other_number(const protocol::Assignment& assignment);
    void report_verdict(const JobReport& report);
    [[nodiscard]] CulpritStderr stderr_in_box(const std::optional<protocol::Verdict>& verdict) const;
    void send_final_report(const std::string& text, int exit_code, const JobReport& report) const;

    const AgentConfig& config_;
    Console& console_;
    DelayedLine waiting_line_;
    DelayedLine stop_line_;
    std::string ranks_line_;             ///< the latest line about this node's ranks
    std::string absent_ranks_line_;      ///< the latest line about ranks that the job lacks
    std::optional<NodeRank> node_rank_;  ///< in the latest group
    std::string apart_hint_;             ///< as the latest wait showed: why the other nodes may be in another job
    bool log_folder_reported_ = false;
    bool other_number_reported_ = false;
};

}  // namespace ddprun::agent

#pragma once
// WorkerSpecBuilder: builds the WorkerSpec of each worker of this node: command, environment, error file, flight
// record, and the routes of its output. Owned by LocalGroup; one thread.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/workers/notice_file.hpp"
#include "agent/workers/worker.hpp"
#include "common/ids.hpp"
#include "common/stream_code.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class WorkerSpecBuilder {
public:
    /// Calls `warn` with a sentence about each thing that workers have to start without; equal causes are one.
    /// The others outlive this object.
    WorkerSpecBuilder(const AgentConfig& config, Console& console, LogWriter& logs,
                      std::function<void(const std::string&)> warn)
        : config_(config), console_(console), logs_(logs), warn_(std::move(warn)) {}

    /// Has the console fold the lines of the workers of `assignment`, if that is wanted, and lets lines wait for all of
    /// them. Call it before they are made.
    void prepare_console(const protocol::Assignment& assignment);
    /// Lets no line wait for the workers from `first` on, because they do not start.
    void close_console_from(LocalRank first);
    /// Builds the spec of a worker and has its log files opened. A file that cannot be opened causes a warning; the
    /// worker starts without it.
    [[nodiscard]] WorkerSpec make(const protocol::Assignment& assignment, const std::string& run_id, LocalRank rank);

    /// Writes a notice of preemption into the file that the workers know by DDPRUN_PREEMPT_FILE.
    void write_notice(const protocol::Preempt& notice);

    /// Returns the path of the file for a worker's stderr; empty if its stderr goes to no file.
    [[nodiscard]] std::string log_file(const protocol::Assignment& assignment, const std::string& run_id,
                                       LocalRank rank) const;

private:
    [[nodiscard]] Route route(const protocol::Assignment& assignment, const std::string& run_id, LocalRank rank,
                              StreamCode stream);
    [[nodiscard]] std::string interface_for(const protocol::Assignment& assignment) const;
    [[nodiscard]] bool nccl_has_interface();
    [[nodiscard]] std::string label(const protocol::Assignment& assignment, const std::vector<int>& local_ranks) const;
    [[nodiscard]] std::optional<PseudoTerminal> make_terminal(const Route& route);
    void open_own_file(Route& route, const std::string& path);
    [[nodiscard]] std::optional<ErrorFile> error_file();
    [[nodiscard]] const NoticeFile* notice_file();
    void warn_once(const Error& error, const std::string& consequence);

    const AgentConfig& config_;
    Console& console_;
    LogWriter& logs_;
    std::function<void(const std::string&)> warn_;
    std::optional<NoticeFile> notice_file_;         ///< made for the first worker
    std::set<std::pair<std::string, int>> warned_;  ///< consequences and error codes
    std::optional<bool> nccl_has_interface_;        ///< once it is needed
    bool own_files_hang_ = false;                   ///< the file system of the log folder has not answered in time
};

}  // namespace ddprun::agent

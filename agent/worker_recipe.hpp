#pragma once
// WorkerRecipe: what a worker of this node is started with: command, environment, error file, and the ways of its
// output.

#include <optional>
#include <string>

#include "agent/agent.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/worker_processes.hpp"
#include "common/ids.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

class WorkerRecipe {
public:
    /// All three outlive this object.
    WorkerRecipe(const AgentConfig& config, Console& console, LogWriter& logs)
        : config_(config), console_(console), logs_(logs) {}

    /// Opens log and error files; one that cannot be opened costs a warning, not the worker.
    [[nodiscard]] WorkerSpec make(const coordinator::Assignment& assignment, const std::string& run_id, LocalRank rank);

    /// Where all of a worker's stderr is; empty when there is no such file.
    [[nodiscard]] std::string log_file(const coordinator::Assignment& assignment, const std::string& run_id,
                                       LocalRank rank) const;

private:
    [[nodiscard]] Route route(const coordinator::Assignment& assignment, const std::string& run_id, LocalRank rank,
                              Console::Stream stream);
    [[nodiscard]] std::optional<ErrorFile> error_file(const coordinator::Assignment& assignment,
                                                      const std::string& run_id, LocalRank rank);
    void warn_once(const std::string& warning);

    const AgentConfig& config_;
    Console& console_;
    LogWriter& logs_;
    std::string last_warning_;
};

}  // namespace ddprun::agent

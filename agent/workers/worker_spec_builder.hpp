#pragma once
// WorkerSpecBuilder: builds the WorkerSpec of each worker of this node: command, environment, error file, flight
// record, and the routes of its output. Owned by LocalGroup; one thread.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/agent_config.hpp"
#include "agent/output/console.hpp"
#include "agent/output/log_writer.hpp"
#include "agent/workers/worker.hpp"
#include "common/ids.hpp"
#include "common/stream_code.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

class WorkerSpecBuilder {
public:
    /// All three outlive this object.
    WorkerSpecBuilder(const AgentConfig& config, Console& console, LogWriter& logs)
        : config_(config), console_(console), logs_(logs) {}

    /// Has the console fold the lines of the workers of `assignment`, if that is wanted, and lets lines wait for all of
    /// them. Call it before they are made.
    void prepare_console(const protocol::Assignment& assignment);
    /// Lets no line wait for the workers from `first` on, because they do not start.
    void close_console_from(LocalRank first);
    /// Builds the spec of a worker and opens its log and error files. A file that cannot be opened causes a warning;
    /// the worker starts without it.
    [[nodiscard]] WorkerSpec make(const protocol::Assignment& assignment, const std::string& run_id, LocalRank rank);

    /// Returns the path of the file with a worker's stderr; empty if there is no such file.
    [[nodiscard]] std::string log_file(const protocol::Assignment& assignment, const std::string& run_id,
                                       LocalRank rank) const;

private:
    [[nodiscard]] Route route(const protocol::Assignment& assignment, const std::string& run_id, LocalRank rank,
                              StreamCode stream);
    [[nodiscard]] std::string label(const protocol::Assignment& assignment, const std::vector<int>& local_ranks) const;
    [[nodiscard]] std::optional<PseudoTerminal> make_terminal(const Route& route);
    [[nodiscard]] UniqueFd open(const std::filesystem::path& path);
    [[nodiscard]] LogFile open_for_writer(const std::filesystem::path& path, Rotation rotation = {});
    [[nodiscard]] std::optional<ErrorFile> error_file(const protocol::Assignment& assignment, const std::string& run_id,
                                                      LocalRank rank);
    void warn_once(const std::string& warning);

    const AgentConfig& config_;
    Console& console_;
    LogWriter& logs_;
    std::string last_warning_;
};

}  // namespace ddprun::agent

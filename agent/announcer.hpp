#pragma once
// Announcer: what a node tells people about the job: which node it is, what it waits for, why workers are stopped, how
// the job ended. Decides nothing, and says what is soon over not at all. One thread.

#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include <optional>
#include <string>
#include <vector>

#include "agent/agent.hpp"
#include "agent/delayed_line.hpp"
#include "agent/output/console.hpp"
#include "agent/worker_group.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

class Announcer {
public:
    /// Both outlive this object. The name in `config` may change: the job gives this node its own.
    Announcer(boost::asio::io_context& io, const AgentConfig& config, Console& console);

    /// The reason of a step, unless it is empty. What the end of a stop will tell again is said only if that takes
    /// long.
    void tell_reason(const Event& event, const State& after, const std::string& reason);
    void tell_wait(const coordinator::Waiting& waiting);
    /// Something about the job as a whole: said by one node where one terminal shows several.
    void tell_job_notice(const std::string& text);
    /// Workers are about to be started.
    void tell_start(const coordinator::Assignment& assignment);
    /// The agent ends. `left`: processes that survive SIGKILL.
    void tell_end(const Finish& finish, const State& state, const std::vector<pid_t>& left);

    /// In front of the agent's own lines: who speaks, when there are several who could.
    [[nodiscard]] std::string tag() const { return config_.max_nodes == 1 ? "" : config_.node_name + ": "; }

private:
    void tell_place(const coordinator::Assignment& assignment);
    void tell_verdict(const coordinator::Verdict& verdict);
    void leave_last_words(std::string text) const;

    const AgentConfig& config_;
    Console& console_;
    DelayedLine waiting_line_;
    DelayedLine stop_line_;
    std::string place_;                  ///< as it was told last
    std::optional<NodeRank> node_rank_;  ///< in the latest group
};

}  // namespace ddprun::agent

#pragma once
// One node of a job: joins the rendezvous, starts the workers it is assigned, watches, stops and restarts them, and
// ends with the job's verdict. Owns its own io_context; call run_agent from the main thread (parent-death signals
// follow it).

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::agent {

/// Where a stream of a worker goes (torchrun's -r and -t codes are sums of the file bits).
struct OutputConfig {
    std::string log_dir;                  ///< empty: no files
    bool redirect_to_files = false;       ///< console stays silent; needs log_dir
    bool tee = false;                     ///< both, console lines labelled; needs log_dir
    bool label = false;                   ///< console lines labelled with "[host:rank] "
    std::string label_template = {};      ///< … or with this, see worker_label()
    std::vector<int> console_ranks = {};  ///< local ranks whose output the console shows; empty: all
};

struct AgentConfig {
    Endpoint endpoint;                  ///< of the daemon
    std::optional<std::string> run_id;  ///< absent: whatever job the daemon serves
    std::string node_name;              ///< shown to people and to workers (DDPRUN_NODE_NAME)
    std::optional<int> node_rank;
    int min_nodes = 1;
    int max_nodes = 1;
    int slots = 1;  ///< workers on this node
    int max_restarts = 0;
    std::string role = "default";
    std::vector<std::string> command;  ///< argv of a worker; command[0] was resolved to a path by the launcher
    std::chrono::milliseconds connect_timeout{60'000};
    std::chrono::milliseconds grace{30'000};          ///< from SIGTERM to SIGKILL; a maximum, never a wait
    std::chrono::milliseconds stall_warning{30'000};  ///< who waits so long for one operation is asked about; 0: never
    bool virtual_local_rank = false;                  ///< workers have LOCAL_RANK=0 and one visible GPU each
    std::vector<int> drain_signals;                   ///< end the job beside INT, TERM, HUP and QUIT; workers get them
    OutputConfig output;
    std::string program_name;  ///< what people call the program; empty: the file name of command[0]
    std::string program_line;  ///< what the user typed to run it, for people; empty: it has no arguments
    bool emulated = false;     ///< one of several nodes below one launcher (--local-nodes), which speaks for them
    UniqueFd last_words;       ///< emulated: gets what the others print at the end of a job, ended by a zero byte
    UniqueFd guard_pipe;       ///< reads end-of-file when the guard is gone; invalid: no guard
};

/// Runs until the job is over or this node is told to leave. Returns the exit code of ddprun (docs/exit-codes.md).
/// Everything a user must know was printed; no process that it started is left.
[[nodiscard]] int run_agent(AgentConfig config);

}  // namespace ddprun::agent

#pragma once
// AgentConfig: the settings of one node, which the launcher makes from its options for run_agent(). Plain values, and
// the descriptors that it owns.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/worker_binding.hpp"
#include "agent/config/worker_program.hpp"
#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/logging.hpp"
#include "common/rank_ranges.hpp"
#include "common/scale_up.hpp"
#include "common/stream_code.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/pattern.hpp"
#include "rendezvous/client/security.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::agent {

/// The destinations of the workers' output.
struct OutputConfig {
    std::string log_dir;                  ///< empty: no files
    bool temporary = false;               ///< log_dir is removed after a success; only streams named below are kept
    std::uint64_t max_file_bytes = 0;     ///< a file of a rank is rotated then; 0: never
    int kept_files = 3;                   ///< rotated files beside it
    StreamCodes redirects = {};           ///< not to the console
    StreamCodes tee = {};                 ///< with labels to the console, although they may be in `redirects`
    bool label = false;                   ///< console lines labelled with "[host:rank] "
    std::string label_template = {};      ///< … or with this, as of worker_label()
    std::vector<int> console_ranks = {};  ///< local ranks whose output the console shows; empty: all
    RankRanges console_job_ranks = {};    ///< … and ranks in the job
    std::optional<Pattern> shown = {};    ///< the console shows only lines with a match; absent: all
    std::optional<Pattern> hidden = {};   ///< … and no line with a match
    std::vector<std::string> stdout_filters = {};  ///< tee'd lines with one of these also go to a file for all ranks
    std::vector<std::string> stderr_filters = {};
    bool fold = false;        ///< equal console lines of several workers become one with their ranks
    bool timestamps = false;  ///< lines on the console and in files begin with the time of day
    bool pty = false;         ///< workers print to a terminal of their own where the console is one
    bool prompts = false;     ///< stdin is a terminal: the console shows a line that stays without its end
};

/// A scheduler's time limit, before which the job gets notice of a preemption.
struct TimeLimit {
    TimePoint notice_at;
    std::string why;  ///< one clause: "the time limit of the job ends at 12:00:00 (SLURM_JOB_END_TIME)"
};

/// One member for each setting of the launcher that the agent needs.
struct AgentConfig {
    Endpoint endpoint;                  ///< of the daemon
    client::Security security = {};     ///< of connections to other hosts
    std::optional<Endpoint> master;     ///< MASTER_ADDR and MASTER_PORT of the workers; absent: those assigned
    std::string local_address;          ///< at which other nodes reach the workers; empty: any that they find
    std::optional<std::string> run_id;  ///< absent: any job that the daemon serves
    std::string node_name;              ///< in messages, and for workers (DDPRUN_NODE_NAME)
    std::string session = {};           ///< of the daemon, once it is known; empty: it has none
    std::string worker_key = {};        ///< of the daemon, as the session (protocol::Welcome); never logged
    std::optional<int> node_rank;       ///< that this node asks for
    bool node_rank_is_hint = false;     ///< a scheduler gave it, and another one is as good
    int min_nodes = 1;
    int max_nodes = 1;
    std::string apart_hint = {};  ///< the likely reason if this node waits alone, a clause; empty: none is known
    std::vector<WorkerProgram> programs = {};  ///< at least one; local ranks follow their order
    ScaleUp scale_up = ScaleUp::kImmediate;    ///< what the job does with nodes that could enlarge its world
    bool spare = false;                        ///< this node may wait beside a job that has all its nodes
    protocol::Launch launch;                   ///< on which the nodes of a job agree
    std::chrono::milliseconds connect_timeout{60'000};
    std::chrono::milliseconds grace{};  ///< at most, from the first signal to SIGKILL; Options::grace has the default
    std::optional<TimeLimit> time_limit = {};
    std::chrono::milliseconds stall_warning{30'000};  ///< for one operation of a worker, until it is reported; 0: never
    /// With --virtual-local-rank workers have LOCAL_RANK=0, and each sees one device by these variables; else empty.
    std::vector<std::string> device_variables = {};
    std::vector<WorkerBinding> bindings = {};  ///< by local rank; empty: workers run where the agent may
    std::vector<int> handled_signals;  ///< signals that end the job and that the workers get themselves; INT, TERM, HUP
                                       ///< and QUIT end it in any case, and reach them as SIGTERM if they are not named
    OutputConfig output;
    LineStart log_start = LineStart::kTag;  ///< of this process's own lines
    std::string report;                     ///< of --report; empty: none
    std::string events;                     ///< of --events, to name `events_file` in messages
    UniqueFd events_file;                   ///< open for appending; invalid: none
    std::chrono::system_clock::time_point began_at = std::chrono::system_clock::now();  ///< this ddprun
    TimePoint began = Clock::now();  ///< the same, for durations: the daemon may be looked for before the agent begins
    std::string error_file;          ///< of this ddprun, from TORCHELASTIC_ERROR_FILE; empty: none
    std::string program_line;        ///< the programs as typed, in the box; empty: there is one without arguments
    std::string command_line;        ///< what the workers execute, in the report
    std::string interpreter = {};    ///< of a Python program, with the reason of its choice; empty: no Python program
    bool emulated = false;   ///< one of several nodes below one launcher (--local-nodes), which prints for all of them
    UniqueFd final_report;   ///< of an emulated node: the file for its final report (status_reporter.hpp)
    UniqueFd open_lines;     ///< of an emulated node: of SharedLines, for the console that all nodes share
    int console_writer = 0;  ///< … and its number there
    UniqueFd guard_pipe;     ///< reads end-of-file when the guard has ended; invalid: no guard
    std::string control_group = {};    ///< the folder of the control group for the workers; empty: none
    bool joins_control_group = false;  ///< ControlGroup::has_to_be_joined()
    UniqueFd standby;                  ///< of a daemon that is not needed once this node was admitted; invalid: none
    UniqueFd keeper_lifeline;  ///< held for the keeper of that group, which reads end-of-file when this process ends

    /// Returns the number of workers on this node.
    [[nodiscard]] int slots() const { return slots_of(programs); }
};

}  // namespace ddprun::agent

#pragma once
// Options: the user's options as plain values. The command line wins over PET_* variables, those over defaults. Pure:
// nothing is looked up on this machine; placement.hpp, slots.hpp and program.hpp do that with these values.

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/rank_ranges.hpp"
#include "common/scale_up.hpp"
#include "common/system/process.hpp"
#include "common/text/pattern.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/scheduler/allocation.hpp"
#include "launcher/scheduler/ssh_hosts.hpp"

namespace ddprun::launcher {

using ddprun::Environment;

/// The value of --rdzv-backend. There is one rendezvous: the values differ in how long a node waits for a daemon that
/// is not there yet and in MASTER_ADDR and MASTER_PORT (names_static_master()); etcd is a place where the nodes find
/// the daemon's address.
enum class RdzvBackend {
    kUnnamed,  ///< the user names none: as kStatic, but an endpoint is not for the workers
    kStatic,
    kC10d,
    kEtcd,
};

/// The value of --fence: what ends the processes of a node when nothing else can (docs/design/019).
enum class Fence {
    kAuto,       ///< a control group if this process may make one, else the guard alone
    kCgroup,     ///< a control group
    kNamespace,  ///< a pid namespace
    kGuard,      ///< the guard alone
};

/// A program that this node's workers run, with the options of its own. The first one comes after the options of the
/// job, each further one after ": --nproc-per-node N".
struct Program {
    Slots slots;
    int max_restarts = 0;
    std::string role = "default";
    bool no_python = false;
    bool module = false;
    bool run_path = false;             ///< it is a Python script, whatever its name
    bool check = false;                ///< `ddprun check`: it is the ddp-check beside ddprun
    std::vector<std::string> command;  ///< as typed; never empty after parse_options()
};

/// One member for each option that has an effect.
struct Options {
    // the job
    NodeRange nodes;
    std::vector<Program> programs = {Program()};  ///< in the order of the local ranks of their workers
    ScaleUp scale_up = ScaleUp::kImmediate;
    bool spare = false;
    bool local_nodes = false;
    bool virtual_local_rank = false;  ///< each worker sees LOCAL_RANK=0 and one GPU
    /// The names of the GPUs that the workers use, as in CUDA_VISIBLE_DEVICES; empty: all; absent: as inherited.
    std::optional<std::vector<std::string>> gpus;
    std::optional<NumaBinding> numa_binding;  ///< absent: workers run where ddprun may
    bool dry_run = false;                     ///< print the plan and start nothing

    // where the nodes meet
    bool standalone = false;
    std::optional<Endpoint> rdzv_endpoint;
    std::optional<std::string> rdzv_id;
    RdzvBackend rdzv_backend = RdzvBackend::kUnnamed;
    std::vector<Endpoint> etcd_servers;   ///< from --rdzv-endpoint, not empty with `etcd` after parse_options()
    std::optional<std::string> rdzv_dir;  ///< the directory in which the nodes meet
    RdzvConf rdzv_conf;
    std::optional<int> node_rank;
    std::vector<SshHost> hosts;  ///< on which ddprun starts itself; empty: this is one node of the job
    std::string ssh = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15";  ///< for those
    std::optional<SshNode> as_ssh_node;  ///< set in the processes that are started there
    /// The nodes that a scheduler gave; absent: there are none, or other options have named the nodes.
    std::optional<Allocation> allocation;
    std::optional<std::string> master_addr;
    std::optional<std::uint16_t> master_port;
    std::optional<std::string> local_addr;  ///< of this machine, for its workers and the store of its daemon
    bool insecure = false;                  ///< no TLS, even between hosts
    bool store_vouch = false;               ///< clients of the store on other hosts are confirmed by the ddprun there

    // output and ending
    std::optional<std::string> log_dir;  ///< absent: a temporary folder if wants_temporary_log_dir(); empty: no files
    std::string temporary_log_dir;       ///< empty: none has been made
    std::uint64_t max_log_bytes = 0;     ///< of one file of a rank; 0: no limit
    int kept_logs = 3;                   ///< rotated files beside it
    StreamCodes redirects;
    StreamCodes tee;
    std::vector<std::string> stdout_filters;  ///< texts in lines for filtered_stdout.log
    std::vector<std::string> stderr_filters;
    bool label = false;
    std::string label_template;      ///< of labelled lines; empty: as in worker_label() and kTorchrunLabel
    std::string label_source;        ///< of label_template: "--log-line-prefix-template", or the name of a variable
    std::vector<int> console_ranks;  ///< local ranks; empty: all
    RankRanges console_job_ranks;    ///< ranks in the job; empty: all
    std::optional<Pattern> shown;    ///< in lines of the console (--grep)
    std::optional<Pattern> hidden;   ///< in no line of the console (--exclude)
    bool fold = false;               ///< equal console lines of several workers become one
    bool pty = false;                ///< workers print to a terminal of their own where the console is one
    bool timestamps = false;         ///< lines of workers, and of ddprun on a terminal, begin with the time of day
    /// The time that a worker has to end after the signal, before it is killed (--shutdown-timeout).
    std::chrono::milliseconds grace{30'000};
    /// The signals that end the job and reach the workers as themselves (--signals-to-handle).
    std::vector<int> handled_signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    std::optional<std::string> report;  ///< file for how the job ended
    std::optional<std::string> events;  ///< file to which the events are appended
    Fence fence = Fence::kAuto;
    std::chrono::milliseconds stall_warning{30'000};  ///< 0: none
    /// How long before the end of the job the workers get notice of a preemption; 0: they get none; absent: the
    /// default.
    std::optional<std::chrono::milliseconds> preempt_before;
    std::optional<std::chrono::system_clock::time_point> job_ends_at;  ///< by the scheduler; absent: it does not say
    bool verbose = false;                                              ///< log the decisions of ddprun

    std::optional<LocalNode> as_local_node;  ///< set in the processes that --local-nodes starts
    std::vector<std::string> notes;          ///< one sentence for each option that lacks the effect that was expected
    std::vector<std::string> details;        ///< one sentence for each option without an effect to miss; for the log
};

/// Returns whether some stream goes to files only, and the user has named no folder for them.
[[nodiscard]] bool wants_temporary_log_dir(const Options& options);
/// Returns whether the nodes find the daemon's address in etcd.
[[nodiscard]] inline bool uses_etcd(const Options& options) { return options.rdzv_backend == RdzvBackend::kEtcd; }
/// Returns whether --rdzv-endpoint names MASTER_ADDR and MASTER_PORT, too, as in torchrun's static rendezvous: the user
/// asks for that one, by its name or by --node-rank, for a fixed number of nodes.
[[nodiscard]] bool names_static_master(const Options& options);
/// Returns how long a node tries to reach the daemon. One `elsewhere` may start minutes later, and torchrun's static
/// rendezvous waits for it; a daemon of this machine or of a meeting point is there already.
[[nodiscard]] std::chrono::milliseconds connect_timeout(const Options& options, bool elsewhere);
/// Returns whether some output goes to files.
[[nodiscard]] bool writes_files(const Options& options);

/// Options to run with, or a text (--help, --version, --print-completion) to print instead.
struct Invocation {
    Options options;
    std::string print;
};

/// Parses `arguments` (without argv[0]). Errors: Errc::kUsage, "--nnodes 3:2: …" or "PET_NNODES=3:2: …".
[[nodiscard]] Result<Invocation> parse_options(const std::vector<std::string>& arguments,
                                               const Environment& environment);

/// Returns the value of --report or its variable, although parse_options() may refuse other options; empty: none,
/// or not a file.
[[nodiscard]] std::string named_report(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ddprun::launcher

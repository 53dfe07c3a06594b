#include "launcher/options/option_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/job_limits.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::uint16_t kDefaultRdzvPort = 29400;  // torchrun's, for an endpoint without port

constexpr std::string_view kJob = "The job";
constexpr std::string_view kMeeting = "Where the nodes meet";
constexpr std::string_view kProgram = "The program";
constexpr std::string_view kOutput = "Output and ending";
constexpr std::string_view kCompatible = "Accepted for torchrun's sake, without effect";

using Text = std::string_view;

template <typename Target, typename Parsed>
Result<void> store(Target& target, Result<Parsed> parsed) {
    if (!parsed) return parsed.error();
    target = std::move(*parsed);
    return {};
}

Result<void> store_text(std::optional<std::string>& target, Text text) {
    // A script passes an empty value if its variable is not set: as in torchrun the option counts as absent.
    if (!text.empty()) target = std::string(text);
    return {};
}

Result<void> store_file(std::optional<std::string>& target, Text text) {
    if (text == "-") {
        return Error{Errc::kUsage,
                     "needs the name of a file: stdout and stderr are for the output of the workers. Write ./- for a "
                     "file of this name."};
    }
    return store_text(target, text);
}

Result<void> store_pattern(std::optional<Pattern>& target, Text text) {
    return text.empty() ? Result<void>() : store(target, Pattern::parse(text));
}

/// Notes that an option has no effect: for the log only, because a script that was written for torchrun passes it on
/// every run, and nothing is missing.
Result<void> without_effect(Options& options, std::string_view name, std::string_view why) {
    options.details.push_back(fmt::format("--{} has no effect: {}", name, why));
    return {};
}

Result<void> apply_endpoint(Options& o, Text text) {
    if (text.empty()) return {};
    return uses_etcd(o) ? store(o.etcd_servers, parse_etcd_servers(text))
                        : store(o.rdzv_endpoint, parse_endpoint(text, kDefaultRdzvPort));
}

Result<void> apply_ssh_node(Options& options, Text text) {
    auto node = parse_ssh_node(text);
    if (!node) return node.error();
    options.hosts = std::move(node->hosts);
    options.as_ssh_node = std::move(*node);
    return {};
}

Result<void> apply_id(Options& o, Text text) {
    return text.empty() ? Result<void>() : store(o.rdzv_id, parse_name(text));
}

Result<void> apply_backend(Options& o, Text text) {
    // ddprun has only one rendezvous; etcd is a place where the nodes find its address.
    const auto choice = parse_choice(text, {"static", "c10d", "etcd", "etcd-v2"});
    if (!choice) return choice.error();
    o.rdzv_backend = *choice == "static" ? RdzvBackend::kStatic
                     : *choice == "c10d" ? RdzvBackend::kC10d
                                         : RdzvBackend::kEtcd;
    return {};
}

Result<void> apply_fence(Options& o, Text text) {
    const auto choice = parse_choice(text, {"auto", "cgroup", "namespace", "guard"});
    if (!choice) return choice.error();
    o.fence = *choice == "auto"        ? Fence::kAuto
              : *choice == "cgroup"    ? Fence::kCgroup
              : *choice == "namespace" ? Fence::kNamespace
                                       : Fence::kGuard;
    return {};
}

Result<void> apply_conf(Options& o, Text text) {
    const Result<void> stored = store(o.rdzv_conf, parse_rdzv_conf(text));
    if (stored && !o.rdzv_conf.without_effect.empty()) {
        o.details.push_back(
            fmt::format("--rdzv-conf {}: no effect: ddprund decides this for all nodes", o.rdzv_conf.without_effect));
    }
    return stored;
}

Result<void> apply_master_port(Options& o, Text text) {
    const auto port = parse_integer(text, 0, 65535);
    if (!port) return port.error();
    o.master_port = static_cast<std::uint16_t>(*port);
    return {};
}

Result<void> apply_log_dir(Options& o, Text text) {
    if (text != "/dev/null") return store_text(o.log_dir, text);
    o.log_dir = "";  // as in torchrun: no files
    return {};
}

Result<void> apply_monitor_interval(Options& o, Text text) {
    const auto seconds = parse_seconds(text, true);
    return seconds ? without_effect(o, "monitor-interval", "the end of a worker is noticed at once") : seconds.error();
}

Result<void> apply_start_method(Options& o, Text text) {
    const auto choice = parse_choice(text, {"spawn", "fork", "forkserver"});
    return choice ? without_effect(o, "start-method", "workers are programs, not Python functions") : choice.error();
}

/// torchrun's own name for what it does without the option.
Result<void> apply_logs_specs(Options&, Text text) {
    if (text == "default") return {};
    return Error{Errc::kUsage,
                 "not default, the only one: in torchrun a Python class of this name decides where output goes. Use "
                 "--log-dir, --redirects and --tee."};
}

/// "null" is torchrun's default and needs no note.
Result<void> apply_event_log(Options& o, Text text) {
    const auto choice = parse_choice(text, {"null", "console"});
    if (!choice) return choice.error();
    return *choice == "null" ? Result<void>() : without_effect(o, "event-log-handler", "--events FILE has the events");
}

Result<void> apply_scale_up(Options& o, Text text) {
    const auto choice = parse_choice(text, {"immediate", "at-restart", "never"});
    if (!choice) return choice.error();
    const auto* named = std::ranges::find(kScaleUpNames, *choice, [](const auto& name) { return name.second; });
    o.scale_up = named->first;
    return {};
}

/// The number of the first program's workers follows, unless --nproc-per-node is given, whose row comes later.
Result<void> apply_gpus(Options& o, Text text) {
    if (text.empty()) return {};
    o.programs.front().slots = {Slots::Kind::kGpu, 0};
    return store(o.gpus, parse_gpus(text));
}

/// Returns a row of an option that belongs to a program: after ':' it applies to the further one.
constexpr OptionRow of_program(OptionRow row) {
    row.of_program = true;
    return row;
}

Result<void> apply_numa_binding(Options& o, Text text) {
    return text.empty() ? Result<void>() : store(o.numa_binding, parse_numa_binding(text));
}

constexpr std::array kTable{
    OptionRow{"nnodes", 0, kJob, "N|MIN:MAX",
              "number of nodes, or the range within which the job may shrink and grow (default: the nodes "
              "that srun, mpirun, mpiexec, flux run or --hosts gave, else 1)",
              [](Options& o, Text t) { return store(o.nodes, parse_nodes(t)); }},
    // Before --nproc-per-node, which wins over the number of workers that follows from the GPUs.
    OptionRow{"gpus", 0, kJob, "LIST|auto",
              "the GPUs that this node's workers use, as in 0,2,4-7 or by UUID, or auto: all; CUDA_VISIBLE_DEVICES "
              "(AMD: HIP_VISIBLE_DEVICES, Intel: ZE_AFFINITY_MASK) of ddprun limits the choice; without "
              "--nproc-per-node there is one worker for each",
              apply_gpus},
    of_program(OptionRow{
        "nproc-per-node", 0, kJob, "N|cpu|gpu|xpu|auto",
        "workers on this node: a number, one per allowed CPU, one per GPU of NVIDIA or AMD, one per GPU of Intel "
        "(xpu), or auto: as gpu if there is one, else as cpu (default: the slots of the host in --hosts, or the GPUs "
        "that SLURM gave on this node, else 1)",
        [](Options& o, Text t) { return store(o.programs.back().slots, parse_slots(t)); }}),
    of_program(OptionRow{"max-restarts", 0, kJob, "N",
                         "how often the job may restart its workers after failures of workers of this role (default 0)",
                         [](Options& o, Text t) {
                             return store(o.programs.back().max_restarts, parse_integer(t, 0, kMaxRestartLimit));
                         }}),
    OptionRow{
        "scale-up", 0, kJob, "immediate|at-restart|never",
        "with --nnodes MIN:MAX, what a job that runs with fewer than MAX nodes does when another one joins: "
        "restart its workers with it, when none has joined for 5 s, 30 s at most, and not again before it has run "
        "for 60 s, which doubles each time (a lost node that comes back counts as another one, too); take it in when "
        "the workers are restarted for another reason; or never "
        "grow beyond the nodes that it began with (default immediate)",
        apply_scale_up},
    OptionRow{"spare", 0, kJob, "",
              "if the job has all its nodes already, wait to take the place of a lost one; without it ddprun ends with "
              "an error then (nodes beyond MAX of MIN:MAX wait in any case)",
              [](Options& o, Text t) { return store(o.spare, parse_bool(t)); }},
    OptionRow{"local-nodes", 0, kJob, "", "emulate all MAX nodes on this machine, as processes of their own",
              [](Options& o, Text t) { return store(o.local_nodes, parse_bool(t)); }},
    OptionRow{"virtual-local-rank", 0, kJob, "",
              "every worker has LOCAL_RANK=0 and sees one GPU alone: the one at its local rank among those of "
              "CUDA_VISIBLE_DEVICES (AMD: HIP_VISIBLE_DEVICES, Intel: ZE_AFFINITY_MASK if it is set), or among all",
              [](Options& o, Text t) { return store(o.virtual_local_rank, parse_bool(t)); }},
    OptionRow{"numa-binding", 0, kJob, "node|socket|exclusive|core-complex",
              "bind each worker to the CPUs of the NUMA node or socket of its GPU, to cores there that no other worker "
              "gets, or to cores there that share a cache; without GPUs the workers are spread evenly",
              apply_numa_binding},
    OptionRow{"dry-run", 0, kJob, "",
              "print which rank would run on which host, GPUs and CPUs, and which program, and start nothing",
              [](Options& o, Text t) { return store(o.dry_run, parse_bool(t)); }},
    of_program(OptionRow{
        "role", 0, kJob, "NAME",
        "ROLE_NAME of this program's workers; ROLE_RANK and ROLE_WORLD_SIZE count the workers of one role (default "
        "'default'; of a program after ':' its file name without .py)",
        [](Options& o, Text t) { return store(o.programs.back().role, parse_name(t)); }}),

    // Before --rdzv-endpoint, whose meaning depends on it.
    OptionRow{
        "rdzv-backend", 0, kMeeting, "NAME",
        "how the nodes find the rendezvous of ddprun; static or c10d: at its endpoint; etcd or etcd-v2: in etcd (v3 "
        "API), where the first node publishes its address",
        apply_backend},
    OptionRow{"rdzv-endpoint", 0, kMeeting, "HOST[:PORT]",
              "address of the rendezvous daemon, port 29400 by default; the node that has this address starts it. With "
              "etcd: its server or servers, HOST[:PORT],..., port 2379",
              apply_endpoint},
    OptionRow{"rdzv-id", 0, kMeeting, "ID",
              "name of the job; without it a new daemon generates one, and agents join the job that the daemon serves",
              apply_id},
    OptionRow{"rdzv-dir", 0, kMeeting, "DIR",
              "a directory that all nodes share: the first node publishes the address of the daemon there, so that no "
              "node has to be named; needs --rdzv-id",
              [](Options& o, Text t) { return store_text(o.rdzv_dir, t); }},
    OptionRow{"as-ssh-node", 0, "", "INDEX@JOB@LIST", "what --hosts passes to the processes that it starts",
              apply_ssh_node},
    OptionRow{
        "hosts", 0, kMeeting, "LIST|FILE",
        "start this line on these hosts by ssh, one ddprun on each: n1,user@n2,n[3-8], with n1:2 for two workers "
        "there; or a file, whose name contains a slash, with a host per line. Needs the same ddprun and directory "
        "on all",
        [](Options& o, Text t) {
            // A file of hosts may be on the first one alone, which has sent the list.
            return t.empty() || o.as_ssh_node ? Result<void>() : store(o.hosts, parse_ssh_hosts(t));
        }},
    OptionRow{"ssh", 0, kMeeting, "COMMAND",
              "the command that --hosts puts before the name of a host and a line for its shell (default ssh -o "
              "BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15)",
              [](Options& o, Text t) {
                  if (t.find_first_not_of(' ') != Text::npos) o.ssh = std::string(t);
                  return Result<void>();
              }},
    OptionRow{"standalone", 0, kMeeting, "",
              "one node, a daemon of its own on a free port of 127.0.0.1 (the default for one node)",
              [](Options& o, Text t) { return store(o.standalone, parse_bool(t)); }},
    OptionRow{"node-rank", 0, kMeeting, "N",
              "the number of this node among the nodes, from 0 to MAX - 1, if it is free",
              [](Options& o, Text t) { return store(o.node_rank, parse_integer(t, 0, kMaxNodes - 1)); }},
    OptionRow{"master-addr", 0, kMeeting, "HOST",
              "names the endpoint as torchrun's static rendezvous does (default 127.0.0.1)",
              [](Options& o, Text t) { return store_text(o.master_addr, t); }},
    OptionRow{"master-port", 0, kMeeting, "PORT", "port that goes with --master-addr (default 29500)",
              apply_master_port},
    OptionRow{"local-addr", 0, kMeeting, "HOST",
              "address of this machine at which its workers are reached by those of other nodes, and the store, if the "
              "daemon starts here (default: the address that reaches the daemon)",
              [](Options& o, Text t) { return store_text(o.local_addr, t); }},
    OptionRow{
        "rdzv-conf", 0, kMeeting, "KEY=VALUE,...",
        "settings: join_timeout or timeout, last_call_timeout, read_timeout (seconds); keep_alive_interval and "
        "keep_alive_max_attempt (their product is the silence after which a node is lost: 3 seconds unless one is "
        "given, then 5 and 3); is_host (whether to start the daemon here); rank (as --node-rank); store_type=tcp (the "
        "only one); for etcd also protocol=http|https, "
        "cacert, cert, key, etcd_prefix, username, password_file",
        apply_conf},
    OptionRow{
        "insecure", 0, kMeeting, "",
        "no TLS between the nodes: every host that reaches the daemon can join the job; all nodes need this option "
        "then",
        [](Options& o, Text t) { return store(o.insecure, parse_bool(t)); }},
    OptionRow{
        "store-vouch", 0, kMeeting, "",
        "keep other users of the job's hosts out of its store: the ddprun of a host confirms each connection from "
        "there; for the node that hosts the daemon",
        [](Options& o, Text t) { return store(o.store_vouch, parse_bool(t)); }},

    of_program(OptionRow{"module", 'm', kProgram, "", "the program is a Python module: python3 -u -m program",
                         [](Options& o, Text t) { return store(o.programs.back().module, parse_bool(t)); }}),
    of_program(OptionRow{"run-path", 0, kProgram, "",
                         "the program is a Python script even if its name does not end in .py",
                         [](Options& o, Text t) { return store(o.programs.back().run_path, parse_bool(t)); }}),
    of_program(OptionRow{"no-python", 0, kProgram, "", "execute the program itself even if its name ends in .py",
                         [](Options& o, Text t) { return store(o.programs.back().no_python, parse_bool(t)); }}),

    OptionRow{"log-dir", 0, kOutput, "DIR",
              "keep what the workers print in files there; without it, --redirects uses a temporary folder, which is "
              "removed if the job succeeds; /dev/null: no files",
              apply_log_dir},
    OptionRow{"log-max-size", 0, kOutput, "SIZE",
              "rotate a file of a rank when it has this size, such as 100M: rank-0.out becomes rank-0.out.1",
              [](Options& o, Text t) { return store(o.max_log_bytes, parse_size(t)); }},
    OptionRow{"log-keep", 0, kOutput, "N", "how many rotated files of each stream are kept (default 3)",
              [](Options& o, Text t) { return store(o.kept_logs, parse_integer(t, 0, kMaxKeptLogs)); }},
    OptionRow{"redirects", 'r', kOutput, "0..3|N:0..3,...",
              "streams that go to files only: 0: none, 1: stdout, 2: stderr, 3: both; or by local rank, as in 0:3,1:1, "
              "and 0 for the others",
              [](Options& o, Text t) { return store(o.redirects, parse_stream_codes(t)); }},
    OptionRow{
        "tee", 't', kOutput, "0..3|N:0..3,...",
        "streams that go to the console, in lines that start with [default0]: (role and local rank), and to files "
        "if there are any (--log-dir, --redirects); wins over --redirects",
        [](Options& o, Text t) { return store(o.tee, parse_stream_codes(t)); }},
    OptionRow{"duplicate-stdout-filters", 0, kOutput, "TEXT,TEXT,...",
              "lines of --tee that contain one of these texts also go to filtered_stdout.log beside the files of the "
              "ranks; ,, is a comma within a text",
              [](Options& o, Text t) {
                  o.stdout_filters = parse_filters(t);
                  return Result<void>();
              }},
    OptionRow{"duplicate-stderr-filters", 0, kOutput, "TEXT,TEXT,...", "the same for stderr and filtered_stderr.log",
              [](Options& o, Text t) {
                  o.stderr_filters = parse_filters(t);
                  return Result<void>();
              }},
    OptionRow{"label", 0, kOutput, "", "console lines start with [host:rank]",
              [](Options& o, Text t) { return store(o.label, parse_bool(t)); }},
    OptionRow{"log-line-prefix-template", 0, kOutput, "TEXT",
              "with --label, --fold or --tee: console lines start with TEXT instead, in which ${role_name}, "
              "${local_rank}, ${rank} "
              "and ${hostname} are replaced",
              [](Options& o, Text t) {
                  o.label_template = std::string(t);
                  return Result<void>();
              },
              "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    OptionRow{"local-ranks-filter", 0, kOutput, "N,N,...",
              "show only what these workers of each node print, by local rank; files are kept of all (default: all)",
              [](Options& o, Text t) { return store(o.console_ranks, parse_local_ranks(t)); }},
    OptionRow{"ranks-filter", 0, kOutput, "N,N-N,...",
              "show only what these ranks of the job print, on whatever node they are; files are kept of all",
              [](Options& o, Text t) { return store(o.console_job_ranks, parse_rank_ranges(t)); }},
    OptionRow{"grep", 0, kOutput, "PATTERN",
              "show only lines of workers that match this regular expression (RE2's syntax); files are kept of all",
              [](Options& o, Text t) { return store_pattern(o.shown, t); }},
    OptionRow{"exclude", 0, kOutput, "PATTERN",
              "show no line of a worker that matches this regular expression, even if --grep would",
              [](Options& o, Text t) { return store_pattern(o.hidden, t); }},
    OptionRow{"fold", 0, kOutput, "",
              "console lines that several workers of this node print within 0.3 s are shown once, as [ranks 0-7] text",
              [](Options& o, Text t) { return store(o.fold, parse_bool(t)); }},
    OptionRow{"pty", 0, kOutput, "",
              "where the console is a terminal, so is the stdout and stderr of every worker: they print colours and "
              "progress bars, as wide as the window less the label",
              [](Options& o, Text t) { return store(o.pty, parse_bool(t)); }},
    OptionRow{
        "timestamps", 0, kOutput, "",
        "lines begin with the time of day, on the console and in files; ddprun's own lines do so in any case where "
        "stderr is no terminal",
        [](Options& o, Text t) { return store(o.timestamps, parse_bool(t)); }},
    OptionRow{"shutdown-timeout", 0, kOutput, "SECONDS",
              "the time that a worker has to end after the signal, before it is killed (default 30)",
              [](Options& o, Text t) { return store(o.grace, parse_seconds(t, true)); },
              "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},

    OptionRow{
        "signals-to-handle", 0, kOutput, "NAME,NAME,...",
        "signals that end the job with the grace of --shutdown-timeout and reach the workers as themselves (default "
        "SIGTERM,SIGINT,SIGHUP,SIGQUIT); those four end it in any case, and reach the workers as SIGTERM unless named "
        "here; unless named, SIGUSR1 gives the workers of all nodes notice of a preemption, and SIGUSR2 is passed on "
        "to "
        "them",
        [](Options& o, Text t) { return store(o.handled_signals, parse_signals(t)); }},
    OptionRow{
        "fence", 0, kOutput, "auto|cgroup|namespace|guard",
        "the means to end every process that the workers have started, whatever is killed: a control group, a pid "
        "namespace, or ddprun-guard alone; auto: a control group where this user may make one (default auto)",
        apply_fence},
    OptionRow{"stall-warning", 0, kOutput, "SECONDS",
              "report which ranks keep others waiting when a worker has waited this long for one operation (a "
              "collective, a send or receive); 0: never (default 30)",
              [](Options& o, Text t) { return store(o.stall_warning, parse_seconds(t, true)); }},
    OptionRow{"preempt-before", 0, kOutput, "SECONDS",
              "how long before the scheduler's time limit (SLURM_JOB_END_TIME) the workers get notice of a preemption; "
              "0: never (default 120, or a tenth of the time that is left at the start if that is shorter)",
              [](Options& o, Text t) { return store(o.preempt_before, parse_seconds(t, true)); }},
    OptionRow{"report", 0, kOutput, "FILE",
              "write to FILE how the job ended, as one JSON object: result, exit code, reason, culprit, the other "
              "ranks that failed, phases",
              [](Options& o, Text t) { return store_file(o.report, t); }},
    OptionRow{"events", 0, kOutput, "FILE",
              "append what happens to FILE, one JSON object per line: assignments, starts, exits, stops, the "
              "connection to the daemon, the verdict, and the durations of the phases of each restart",
              [](Options& o, Text t) { return store_file(o.events, t); }},
    OptionRow{"verbose", 'v', kOutput, "",
              "log what ddprun and the daemon that it starts decide, and why; the daemon follows LOGLEVEL if it is set",
              [](Options& o, Text t) { return store(o.verbose, parse_bool(t)); }},

    OptionRow{"monitor-interval", 0, kCompatible, "SECONDS", "the end of a worker is noticed at once",
              apply_monitor_interval},
    OptionRow{"event-log-handler", 0, kCompatible, "null|console", "--events FILE has the events", apply_event_log},
    OptionRow{"logs-specs", 0, kCompatible, "default", "--log-dir, --redirects and --tee decide where output goes",
              apply_logs_specs},
    OptionRow{"start-method", 0, kCompatible, "spawn|fork|forkserver", "workers are programs, not Python functions",
              apply_start_method},

    OptionRow{"as-local-node", 0, "", "INDEX[,FD[,FD]]@HOST:PORT",
              "what --local-nodes passes to the processes that it starts",
              [](Options& o, Text t) { return store(o.as_local_node, parse_local_node(t)); }},
    OptionRow{"temporary-log-dir", 0, "", "DIR", "the folder of --redirects that these processes share",
              [](Options& o, Text t) {
                  o.temporary_log_dir = std::string(t);
                  return Result<void>();
              }},
};

}  // namespace

std::span<const OptionRow> option_table() { return kTable; }

std::string variable_name(const OptionRow& row) {
    std::string name = fmt::format("{}{}", kVariablePrefix, row.name);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    return name;
}

}  // namespace ddprun::launcher

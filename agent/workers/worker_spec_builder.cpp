#include "agent/workers/worker_spec_builder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/config/destinations.hpp"
#include "agent/output/label.hpp"
#include "agent/output/log_files.hpp"
#include "agent/output/pseudo_terminal.hpp"
#include "agent/output/time_stamp.hpp"
#include "agent/workers/environment.hpp"
#include "agent/workers/older_processes.hpp"
#include "agent/workers/worker_secret.hpp"
#include "common/flight_record_layout.hpp"
#include "common/system/cpu_set.hpp"
#include "common/system/interface.hpp"
#include "common/system/process.hpp"
#include "common/system/within.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent {
namespace {

using protocol::Assignment;

/// The longest time for which a worker's own log file is opened. A node counts as lost after 3 s of silence.
constexpr std::chrono::milliseconds kOpenTimeout{500};

Console::Stream console_stream(StreamCode stream) {
    return stream == StreamCode::kStderr ? Console::Stream::kErr : Console::Stream::kOut;
}

/// Returns whether nccl.conf(5) of the user or of the machine names an interface.
bool names_nccl_interface() {
    std::vector<std::string> files{"/etc/nccl.conf"};
    if (const char* const named = std::getenv("NCCL_CONF_FILE"))
        files.emplace_back(named);
    else if (const char* const home = std::getenv("HOME"))
        files.push_back(fmt::format("{}/.nccl.conf", home));
    return std::ranges::any_of(files, [](const std::string& file) {
        std::ifstream lines(file);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("NCCL_SOCKET_IFNAME=")) return true;
        return false;
    });
}

}  // namespace

WorkerSpec WorkerSpecBuilder::make(const Assignment& assignment, const std::string& run_id, LocalRank rank) {
    WorkerSpec spec;
    spec.out = route(assignment, run_id, rank, StreamCode::kStdout);
    spec.err = route(assignment, run_id, rank, StreamCode::kStderr);
    spec.error_file = error_file();
    const WorkerBinding* const binding =
        config_.bindings.empty() ? nullptr : &config_.bindings.at(static_cast<std::size_t>(number(rank)));
    if (binding != nullptr) spec.cpus = binding->cpus;
    const int slots = config_.slots();
    const ProgramRank at = program_rank(config_.programs, rank);
    const WorkerProgram& program = config_.programs[at.program];
    const protocol::RoleRanks& ranks = assignment.program_roles.at(at.program);
    const std::string interface = interface_for(assignment);
    const WorkerSlot slot{rank,
                          slots,
                          binding != nullptr ? binding->threads : threads_per_worker(allowed_cpus(), slots),
                          config_.node_name,
                          run_id,
                          program.role,
                          ranks.base + at.rank,
                          ranks.world_size,
                          program.max_restarts,
                          spec.error_file ? spec.error_file->path() : "",
                          config_.device_variables,
                          config_.master,
                          config_.local_address,
                          interface,
                          !interface.empty() && nccl_has_interface()};
    spec.argv = worker_command(program.command, rank);
    Environment environment = worker_environment(parse_environment(::environ), assignment, slot);
    environment["DDPRUN_ENDPOINT"] = to_string(config_.endpoint);
    environment.erase(kSessionVariable);  // of an outer job
    if (!config_.session.empty()) environment[kSessionVariable] = config_.session;
    environment.erase(flight_record::kDescriptorVariable);  // the agent may itself be a worker of another job
    if (Result<WorkerFlightRecord> made = WorkerFlightRecord::make()) {
        environment[flight_record::kDescriptorVariable] = std::to_string(made->descriptor());
        spec.record.emplace(std::move(*made));
    } else {
        warn_once(made.error(),
                  "the job goes on, but reports of a crash or stall will not show what a worker was doing");
    }
    environment.erase(kStepFileVariable);
    if (Result<StepFile> made = StepFile::make()) {
        environment[kStepFileVariable] = made->path();
        spec.step_file.emplace(std::move(*made));
    } else {
        warn_once(made.error(), "the goodput of a program that writes its steps to a file will not be known");
    }
    environment.erase(kNoticeFileVariable);
    if (const NoticeFile* const file = notice_file()) environment[kNoticeFileVariable] = file->path();
    environment[worker_secret::kDescriptorVariable] = worker_secret::kNoSecret;
    if (!config_.worker_key.empty()) {
        if (auto made = make_secret_memory(derive_worker_secret(config_.worker_key, assignment.generation))) {
            environment[worker_secret::kDescriptorVariable] = std::to_string(made->get());
            spec.secret = std::move(*made);
        } else {
            warn_once(made.error(), "the workers of other nodes refuse connections of ddp::ddp on this one");
        }
    }
    spec.environment = to_strings(environment);
    return spec;
}

/// Returns the name of the interface by which this node reaches the workers' store, or that of --local-addr; empty: it
/// is the only node, or all are on this machine.
std::string WorkerSpecBuilder::interface_for(const Assignment& assignment) const {
    if (assignment.node_count < 2) return "";
    return interface_with(config_.local_address.empty() ? source_address_to(assignment.master_addr)
                                                        : config_.local_address);
}

/// Returns whether a file of NCCL's defaults names an interface, which a variable would override. Such a file may be on
/// a file system that hangs; then it counts as one that does.
bool WorkerSpecBuilder::nccl_has_interface() {
    if (!nccl_has_interface_) nccl_has_interface_ = within(kOpenTimeout, names_nccl_interface).value_or(true);
    return *nccl_has_interface_;
}

Route WorkerSpecBuilder::route(const Assignment& assignment, const std::string& run_id, LocalRank rank,
                               StreamCode stream) {
    const OutputConfig& output = config_.output;
    const bool is_err = stream == StreamCode::kStderr;
    const Destinations to = destinations_of(output, rank, stream, rank_of(assignment, rank));
    Route route;
    route.stream = console_stream(stream);
    route.source = number(rank);
    route.keep_tail = is_err;
    route.timestamps = output.timestamps;
    route.shown = output.shown;
    route.hidden = output.hidden;
    // Patterns are looked for in whole lines, and a pipe or file of the console must get whole ones.
    route.shows_prompts = output.prompts && console_.is_terminal(route.stream) && !output.shown && !output.hidden;
    if (to.console) route.console = &console_;
    if (to.labelled) route.label = label(assignment, {number(rank)});
    if (output.pty && to.console && console_.is_terminal(route.stream)) route.terminal = make_terminal(route);
    if (!to.file) return route;

    const std::filesystem::path folder = log_folder(output.log_dir, run_id, assignment.generation);
    const std::filesystem::path path = folder / log_file_name(rank_of(assignment, rank), is_err ? "err" : "out");
    if (to.own_file)
        open_own_file(route, path.string());
    else
        route.file = logs_.open(path.string(), {output.max_file_bytes, output.kept_files});
    if (!to.duplicates) return route;
    if (LogFile file = logs_.open((folder / (is_err ? "filtered_stderr.log" : "filtered_stdout.log")).string()))
        route.filter.emplace(is_err ? output.stderr_filters : output.stdout_filters, route.label, std::move(file));
    return route;
}

std::string WorkerSpecBuilder::label(const Assignment& assignment, const std::vector<int>& local_ranks) const {
    const OutputConfig& output = config_.output;
    std::vector<std::string> roles;
    for (const int rank : local_ranks) {
        const std::string& role = role_of(config_.programs, LocalRank{rank});
        if (!std::ranges::count(roles, role)) roles.push_back(role);
    }
    const LineSource source{config_.node_name, fmt::format("{}", fmt::join(roles, ",")), Rank{assignment.rank_base},
                            local_ranks};
    if (!output.label_template.empty()) return worker_label(output.label_template, source);
    if (output.label) return worker_label("", source);
    return output.fold ? fold_label(source) : worker_label(kTorchrunLabel, source);
}

void WorkerSpecBuilder::prepare_console(const Assignment& assignment) {
    if (!config_.output.fold) return;
    console_.fold([this, assignment](const std::vector<int>& local_ranks) { return label(assignment, local_ranks); },
                  config_.output.timestamps);
    // Before the first worker starts, so that its lines wait for those of the last one.
    for (int rank = 0, slots = config_.slots(); rank < slots; ++rank) {
        for (const StreamCode stream : {StreamCode::kStdout, StreamCode::kStderr}) {
            const LocalRank local{rank};
            if (destinations_of(config_.output, local, stream, rank_of(assignment, local)).console)
                console_.open(console_stream(stream), rank);
        }
    }
}

void WorkerSpecBuilder::close_console_from(LocalRank first) {
    for (int rank = number(first), slots = config_.slots(); rank < slots; ++rank) {
        for (const Console::Stream stream : {Console::Stream::kOut, Console::Stream::kErr})
            console_.close(stream, rank);
    }
}

/// Makes a pseudo terminal for a stream, whose destinations are known. Warns, and returns none, if there is none left.
std::optional<PseudoTerminal> WorkerSpecBuilder::make_terminal(const Route& route) {
    const std::string start(route.timestamps ? TimeStamp().at(std::chrono::system_clock::now()) : "");
    Result<PseudoTerminal> made =
        make_pseudo_terminal(room_behind(start + route.label, console_.window_size(route.stream)));
    if (made) return std::move(*made);
    warn_once(made.error(), "the output of workers goes through pipes, as without --pty");
    return std::nullopt;
}

/// Opens the file that the worker gets as its stdout. Heartbeats wait meanwhile, so its file system has to answer soon;
/// otherwise this and all later files are left to the log writer.
void WorkerSpecBuilder::open_own_file(Route& route, const std::string& path) {
    if (!own_files_hang_) {
        std::optional<Result<UniqueFd>> opened = within(kOpenTimeout, [path] { return open_log_file(path); });
        if (opened && !*opened)
            return warn_once(opened->error(), "the job goes on without it, and without others that fail likewise");
        if (opened) {
            route.own_file = std::move(**opened);
            return;
        }
        own_files_hang_ = true;
        warn_(fmt::format(
            "cannot open the log file {}: its file system has not answered within {}. The log files are written as "
            "soon as it does",
            path, seconds_text(kOpenTimeout)));
    }
    route.file = logs_.open(path);
}

std::string WorkerSpecBuilder::log_file(const Assignment& assignment, const std::string& run_id, LocalRank rank) const {
    const Rank job_rank = rank_of(assignment, rank);
    if (!destinations_of(config_.output, rank, StreamCode::kStderr, job_rank).file) return "";
    return full_path(log_folder(config_.output.log_dir, run_id, assignment.generation) / log_file_name(job_rank, "err"))
        .string();
}

std::optional<ErrorFile> WorkerSpecBuilder::error_file() {
    Result<ErrorFile> file = ErrorFile::in_memory();
    if (file) return std::move(*file);
    warn_once(file.error(), "the job goes on, but reports of a failure will not show the exceptions of Python workers");
    return std::nullopt;
}

/// Returns the file for notices of preemption, which all workers of this node share; null: it cannot be made.
const NoticeFile* WorkerSpecBuilder::notice_file() {
    if (notice_file_) return &*notice_file_;
    Result<NoticeFile> file = NoticeFile::make();
    if (file) return &notice_file_.emplace(std::move(*file));
    warn_once(file.error(), "workers without ddp::ddp learn of a preemption by SIGUSR1 alone");
    return nullptr;
}

void WorkerSpecBuilder::write_notice(const protocol::Preempt& notice) {
    if (!notice_file_) return;
    if (const Result<void> written = notice_file_->write(notice); !written)
        warn_once(written.error(), "workers without ddp::ddp learn of the preemption by SIGUSR1 alone");
}

/// Warns about `error`, unless an equal code has had the same consequence: the message may contain the path of one of
/// many files.
void WorkerSpecBuilder::warn_once(const Error& error, const std::string& consequence) {
    if (warned_.emplace(consequence, error.code.value()).second)
        warn_(fmt::format("{}; {}", error.message, consequence));
}

}  // namespace ddprun::agent

#include "agent/workers/worker_spec_builder.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "agent/config/destinations.hpp"
#include "agent/output/label.hpp"
#include "agent/output/log_files.hpp"
#include "agent/output/pseudo_terminal.hpp"
#include "agent/output/time_stamp.hpp"
#include "agent/workers/environment.hpp"
#include "agent/workers/older_processes.hpp"
#include "common/flight_record_layout.hpp"
#include "common/system/cpu_set.hpp"
#include "common/system/process.hpp"

namespace ddprun::agent {
namespace {

using protocol::Assignment;

Console::Stream console_stream(StreamCode stream) {
    return stream == StreamCode::kStderr ? Console::Stream::kErr : Console::Stream::kOut;
}

}  // namespace

WorkerSpec WorkerSpecBuilder::make(const Assignment& assignment, const std::string& run_id, LocalRank rank) {
    WorkerSpec spec;
    spec.out = route(assignment, run_id, rank, StreamCode::kStdout);
    spec.err = route(assignment, run_id, rank, StreamCode::kStderr);
    spec.error_file = error_file(assignment, run_id, rank);
    const WorkerBinding* const binding =
        config_.bindings.empty() ? nullptr : &config_.bindings.at(static_cast<std::size_t>(number(rank)));
    if (binding != nullptr) spec.cpus = binding->cpus;
    const int slots = config_.slots();
    const ProgramRank at = program_rank(config_.programs, rank);
    const WorkerProgram& program = config_.programs[at.program];
    const protocol::RoleRanks& ranks = assignment.program_roles.at(at.program);
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
                          config_.local_address};
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
        warn_once(
            fmt::format("{}; the job goes on, but reports of a crash or stall will not show what a worker was doing",
                        made.error().message));
    }
    spec.environment = to_strings(environment);
    return spec;
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
        route.own_file = open(path);
    else
        route.file = open_for_writer(path, {output.max_file_bytes, output.kept_files});
    if (!to.duplicates) return route;
    if (LogFile file = open_for_writer(folder / (is_err ? "filtered_stderr.log" : "filtered_stdout.log")))
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
    warn_once(fmt::format("{}; the output of workers goes through pipes, as without --pty", made.error().message));
    return std::nullopt;
}

/// Opens a log file. Warns, and returns no descriptor, if it cannot be opened.
UniqueFd WorkerSpecBuilder::open(const std::filesystem::path& path) {
    Result<UniqueFd> file = open_log_file(path);
    if (file) return std::move(*file);
    warn_once(fmt::format("{}; the job goes on without it", file.error().message));
    return {};
}

LogFile WorkerSpecBuilder::open_for_writer(const std::filesystem::path& path, Rotation rotation) {
    UniqueFd file = open(path);
    return file ? logs_.take(std::move(file), path.string(), rotation) : LogFile();
}

std::string WorkerSpecBuilder::log_file(const Assignment& assignment, const std::string& run_id, LocalRank rank) const {
    if (config_.output.log_dir.empty()) return "";
    const std::filesystem::path path = log_folder(config_.output.log_dir, run_id, assignment.generation) /
                                       log_file_name(rank_of(assignment, rank), "err");
    std::error_code missing;  // it could not be opened, which was reported
    const std::filesystem::path full = std::filesystem::canonical(path, missing);
    return missing ? "" : full.string();
}

std::optional<ErrorFile> WorkerSpecBuilder::error_file(const Assignment& assignment, const std::string& run_id,
                                                       LocalRank rank) {
    Result<ErrorFile> file = ErrorFile::in_memory();
    if (!config_.output.log_dir.empty()) {
        // An absolute path, because a worker may change its directory.
        std::error_code unknown;
        const std::filesystem::path named = log_folder(config_.output.log_dir, run_id, assignment.generation);
        const std::filesystem::path full = std::filesystem::absolute(named, unknown);
        const std::filesystem::path& folder = unknown ? named : full;
        Result<ErrorFile> on_disk =
            ErrorFile::at((folder / log_file_name(rank_of(assignment, rank), "error.json")).string());
        if (on_disk) file = std::move(on_disk);  // else in memory: the log files warn about that folder
    }
    if (file) return std::move(*file);
    warn_once(
        fmt::format("{}; the job goes on, but reports of a failure will not show the exceptions of Python workers",
                    file.error().message));
    return std::nullopt;
}

void WorkerSpecBuilder::warn_once(const std::string& warning) {
    if (warning == last_warning_) return;
    last_warning_ = warning;
    spdlog::warn("{}: {}", config_.node_name, warning);
}

}  // namespace ddprun::agent

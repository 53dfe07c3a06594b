#include "agent/workers/worker_spec_builder.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "agent/config/destinations.hpp"
#include "agent/output/label.hpp"
#include "agent/output/log_files.hpp"
#include "agent/workers/environment.hpp"
#include "agent/workers/older_processes.hpp"
#include "common/flight_record_layout.hpp"
#include "common/system/process.hpp"

namespace ddprun::agent {
namespace {

using protocol::Assignment;

}  // namespace

WorkerSpec WorkerSpecBuilder::make(const Assignment& assignment, const std::string& run_id, LocalRank rank) {
    WorkerSpec spec;
    spec.out = route(assignment, run_id, rank, StreamCode::kStdout);
    spec.err = route(assignment, run_id, rank, StreamCode::kStderr);
    spec.error_file = error_file(assignment, run_id, rank);
    const WorkerSlot slot{rank,
                          config_.slots,
                          allowed_cpus(),
                          config_.node_name,
                          run_id,
                          config_.role,
                          spec.error_file ? spec.error_file->path() : "",
                          config_.device_variables,
                          config_.master,
                          config_.local_address};
    spec.argv = worker_command(config_.command, rank);
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
    const Destinations to = destinations_of(output, rank, stream);
    Route route;
    route.stream = is_err ? Console::Stream::kErr : Console::Stream::kOut;
    route.source = number(rank);
    route.keep_tail = is_err;
    if (to.console) route.console = &console_;
    if (to.labelled) route.label = label(assignment, rank);
    if (!to.file) return route;

    const std::filesystem::path folder = log_folder(output.log_dir, run_id, assignment.generation);
    route.file = open(folder / log_file_name(rank_of(assignment, rank), is_err ? "err" : "out"));
    if (!to.duplicates) return route;
    if (LogFile file = open(folder / (is_err ? "filtered_stderr.log" : "filtered_stdout.log")))
        route.filter.emplace(is_err ? output.stderr_filters : output.stdout_filters, route.label, std::move(file));
    return route;
}

std::string WorkerSpecBuilder::label(const Assignment& assignment, LocalRank rank) const {
    const OutputConfig& output = config_.output;
    const std::string_view by_default = output.label ? "" : kTorchrunLabel;
    return worker_label(output.label_template.empty() ? by_default : output.label_template,
                        {config_.node_name, config_.role, rank, rank_of(assignment, rank)});
}

/// Opens a log file. Warns, and returns no file, if it cannot be opened.
LogFile WorkerSpecBuilder::open(const std::filesystem::path& path) {
    Result<UniqueFd> file = open_log_file(path);
    if (file) return logs_.take(std::move(*file), path.string());
    warn_once(fmt::format("{}; the job goes on without it", file.error().message));
    return {};
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

#include "launcher/output_settings.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "agent/config/destinations.hpp"
#include "agent/output/label.hpp"
#include "agent/output/log_files.hpp"
#include "agent/output/result_file.hpp"
#include "common/system/standard_fds.hpp"
#include "common/system/within.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace fs = std::filesystem;

namespace ddprun::launcher {
namespace {

/// Returns the deepest part of a path that exists.
fs::path existing_part_of(const fs::path& path) {
    std::error_code ignored;  // the caller's check of the result reports it
    fs::path part = fs::absolute(path, ignored);
    while (!fs::exists(part, ignored) && part.has_relative_path()) part = part.parent_path();
    return part;
}

/// Notes a rank in the value of --redirects or --tee that this node lacks.
void note_absent_rank(Options& options, std::string_view name, const StreamCodes& codes, int slots) {
    const auto absent = codes.by_rank.lower_bound(slots);
    if (absent == codes.by_rank.end()) return;
    options.notes.push_back(
        fmt::format("--{}: no local rank {} among the {} of this node", name, absent->first, slots));
}

}  // namespace

void note_absent_ranks(Options& options, int slots) {
    note_absent_rank(options, "redirects", options.redirects, slots);
    note_absent_rank(options, "tee", options.tee, slots);
    const auto is_absent = [slots](int rank) { return rank >= slots; };
    const auto absent = std::ranges::find_if(options.console_ranks, is_absent);
    if (absent == options.console_ranks.end()) return;
    options.notes.push_back(fmt::format(
        "--local-ranks-filter: no local rank {} among the {} of this node{}", *absent, slots,
        std::ranges::all_of(options.console_ranks, is_absent) ? ", so that nothing its workers print is shown" : ""));
}

void note_unknown_variables(Options& options) {
    if (!options.label && !options.fold && !options.tee.any()) return;
    const std::vector<std::string> unknown = agent::unknown_label_variables(options.label_template);
    if (unknown.empty()) return;
    options.notes.push_back(
        fmt::format("{}: {} {} as written. The variables are {}", options.label_source, list_of(unknown),
                    inflect(unknown.size(), "is not a variable and stays", "are not variables and stay"),
                    list_of(agent::label_variables())));
}

void note_absent_terminal(Options& options) {
    if (!options.pty || ::isatty(STDOUT_FILENO) == 1 || ::isatty(STDERR_FILENO) == 1) return;
    options.details.emplace_back("--pty has no effect: neither stdout nor stderr is a terminal");
}

Result<TemporaryLogDir> make_temporary_log_dir(Options& options, const Environment& environment) {
    if (!wants_temporary_log_dir(options) || !options.temporary_log_dir.empty()) return TemporaryLogDir();
    auto made = TemporaryLogDir::make(environment);
    if (made) options.temporary_log_dir = made->path();
    return made;
}

Result<void> prepare_log_dir(const Options& options) {
    if (options.log_dir.value_or("").empty()) return {};
    const fs::path folder = *options.log_dir;
    const auto usable = within(agent::kFileSystemTimeout, [folder, dry = options.dry_run] {
        return agent::prepare_log_dir(dry ? existing_part_of(folder) : folder);
    });
    if (usable && *usable) return {};
    const Error why = usable ? usable->error()
                             : Error{Errc::kTimeout, fmt::format("its file system has not answered within {}",
                                                                 seconds_text(agent::kFileSystemTimeout))};
    Error error = with_context(fmt::format("cannot keep log files in {}", *options.log_dir), why);
    error.message += ". Pass a --log-dir that this user can write to, or --log-dir /dev/null for no files.";
    return error;
}

agent::OutputConfig output_config(const Options& options) {
    agent::OutputConfig output;
    output.temporary = wants_temporary_log_dir(options);
    output.log_dir = output.temporary ? options.temporary_log_dir : options.log_dir.value_or("");
    output.max_file_bytes = options.max_log_bytes;
    output.kept_files = options.kept_logs;
    output.redirects = options.redirects;
    output.tee = options.tee;
    output.label = options.label;
    output.label_template = options.label_template;
    output.console_ranks = options.console_ranks;
    output.console_job_ranks = options.console_job_ranks;
    output.shown = options.shown;
    output.hidden = options.hidden;
    output.stdout_filters = options.stdout_filters;
    output.stderr_filters = options.stderr_filters;
    output.fold = options.fold;
    output.timestamps = options.timestamps;
    output.pty = options.pty;
    output.prompts = ::isatty(STDIN_FILENO) == 1;
    return output;
}

LineStart log_start(const Options& options) {
    return options.timestamps || ::isatty(STDERR_FILENO) != 1 ? LineStart::kTimeAndTag : LineStart::kTag;
}

int log_files_per_worker(const Options& options) {
    if (!writes_files(options)) return 0;
    return 2 + (options.stdout_filters.empty() ? 0 : 1) + (options.stderr_filters.empty() ? 0 : 1);
}

void warn_of_lost_output(const Options& options, int slots) {
    if (is_open_for_writing(STDOUT_FILENO)) return;
    const agent::OutputConfig output = output_config(options);
    const auto is_shown = [&](int rank) {
        return agent::destinations_of(output, LocalRank{rank}, StreamCode::kStdout).console;
    };
    int rank = 0;
    while (rank < slots && !is_shown(rank)) ++rank;
    if (rank == slots) return;
    spdlog::warn(
        "stdout is not open for writing: what the workers print there is lost. Pass --log-dir DIR and --redirects 3 to "
        "keep it in files, or start ddprun with >/dev/null to discard it");
}

}  // namespace ddprun::launcher

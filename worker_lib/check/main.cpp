// ddp-check: compares the nodes of a job before it starts. It is the program of `ddprun check`. Rank 0 prints.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "common/exit_codes.hpp"
#include "ddp/ddp.hpp"
#include "worker_lib/check/options.hpp"
#include "worker_lib/check/run.hpp"

namespace {

using ddp::check::Options;
using ddp::check::Report;
namespace exit_code = ddprun::exit_code;

constexpr std::chrono::seconds kTimeForRank0{2};

/// Returns whether this process prints; also before there is a group.
bool is_rank_0() {
    const char* rank = std::getenv("RANK");
    return rank == nullptr || std::string_view(rank) == "0";
}

/// The launcher reports the first rank that fails, and stops the others. So the rank that has printed ends first.
void leave_first_to_rank_0() {
    if (!is_rank_0()) std::this_thread::sleep_for(kTimeForRank0);
}

bool print(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
    fmt::print(stderr,
               "ddp-check: cannot write to stdout: {}. The output is lost. Redirect stdout to where there is room\n",
               std::strerror(errno));
    return false;
}

/// Returns why the file cannot be written, as an errno; 0: it can. Neither makes nor changes a file.
int writing_error(const std::filesystem::path& file) {
    std::error_code ignored;  // access() fails, too
    if (std::filesystem::is_directory(file, ignored)) return EISDIR;
    if (::access(file.c_str(), W_OK) == 0) return 0;
    if (errno != ENOENT) return errno;
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
    return ::access(folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

/// Reports a file that cannot be written before anything is measured.
bool can_write(const std::string& json_file) {
    const int error = json_file.empty() || json_file == "-" ? 0 : writing_error(json_file);
    if (error == 0) return true;
    fmt::print(stderr, "ddp-check: cannot write --json '{}': {}. Pass a file that can be written, or - for stdout\n",
               json_file, std::strerror(error));
    return false;  // the other ranks wait for this one, and the launcher stops them
}

/// Writes the report on rank 0. Returns whether everything was written.
bool write(const Report& report, const std::string& json_file) {
    if (json_file == "-") return print(report.json);
    const bool written = print(report.table + report.verdict);
    if (json_file.empty()) return written;
    std::ofstream file(json_file, std::ios::trunc);
    if (file << report.json << std::flush) return written;
    fmt::print(stderr, "ddp-check: cannot write --json '{}': {}. The table on stdout has the facts\n", json_file,
               std::strerror(errno));
    return false;
}

int check(const Options& options) {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const Report report = ddp::check::check_job(context);
    const bool written = context.rank() != 0 || write(report, options.json_file);
    const int code = !context.agree(written) ? EXIT_FAILURE
                     : report.ok             ? exit_code::kSuccess
                                             : exit_code::kDoNotRequeue;
    if (code != exit_code::kSuccess) leave_first_to_rank_0();
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = ddp::check::parse_options({argv + 1, argv + argc});
    if (!options.error.empty()) {
        if (is_rank_0()) fmt::print(stderr, "ddp-check: {}\nTry ddp-check --help.\n", options.error);
        leave_first_to_rank_0();
        return exit_code::kUsage;
    }
    if (is_rank_0() && !can_write(options.json_file)) return exit_code::kUsage;
    if (!options.print.empty()) return !is_rank_0() || print(options.print) ? exit_code::kSuccess : exit_code::kOutput;
    try {
        return check(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ddp-check: {}\n", error.what());
        return EXIT_FAILURE;
    }
}

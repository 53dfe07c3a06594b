#include "agent/config/destinations.hpp"

#include <algorithm>

namespace ddprun::agent {

Destinations destinations_of(const OutputConfig& output, LocalRank rank, StreamCode stream,
                             std::optional<Rank> job_rank) {
    const bool tee = contains(output.tee.of(number(rank)), stream);
    // Else (--log-dir /dev/null) a redirected stream stays on the console, as in torchrun.
    const bool has_files = output.temporary || !output.log_dir.empty();
    const bool redirect = has_files && contains(output.redirects.of(number(rank)), stream) && !tee;
    const bool shown_here = output.console_ranks.empty() ||
                            std::ranges::find(output.console_ranks, number(rank)) != output.console_ranks.end();
    const bool shown_in_job =
        output.console_job_ranks.empty() || !job_rank || contains(output.console_job_ranks, number(*job_rank));
    const auto& filters = stream == StreamCode::kStdout ? output.stdout_filters : output.stderr_filters;
    Destinations to;
    to.console = shown_here && shown_in_job && !redirect;
    to.labelled = tee || output.label || output.fold;
    to.file = has_files && (!output.temporary || tee || redirect);
    to.duplicates = to.file && tee && !filters.empty();
    // The agent reads stderr in any case: it keeps the last lines, and a traceback is a sign of a failure.
    to.own_file = to.file && !to.console && !to.duplicates && stream == StreamCode::kStdout && !output.timestamps &&
                  output.max_file_bytes == 0;
    return to;
}

bool redirects_to_files(const OutputConfig& output, int slots) {
    if (output.log_dir.empty()) return false;
    for (int rank = 0; rank < slots; ++rank) {
        for (const StreamCode stream : {StreamCode::kStdout, StreamCode::kStderr}) {
            const bool redirect = contains(output.redirects.of(rank), stream);
            if (redirect && !contains(output.tee.of(rank), stream)) return true;
        }
    }
    return false;
}

}  // namespace ddprun::agent

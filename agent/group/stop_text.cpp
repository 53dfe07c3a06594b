#include "agent/group/stop_text.hpp"

#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "common/exit_codes.hpp"
#include "common/system/exit_status.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace ddprun::agent::worker_group {

int code_of_failed_start(const Error& error) {
    namespace errc = boost::system::errc;
    if (error.code == errc::no_such_file_or_directory || error.code == errc::not_a_directory) {
        return exit_code::kProgramNotFound;
    }
    if (error.code == Errc::kLimit) return exit_code::kInfrastructure;
    if (error.code == Errc::kSystem) return exit_code::kInternal;
    for (const auto exhausted :
         {errc::resource_unavailable_try_again, errc::not_enough_memory, errc::too_many_files_open,
          errc::too_many_files_open_in_system, errc::no_space_on_device}) {
        if (error.code == exhausted) return exit_code::kInfrastructure;
    }
    return exit_code::kCannotExecute;
}

std::string describe_interruption(const State& state) {
    const std::string name = signal_name(*state.stop_signal);
    const std::string failure = state.failure.empty() ? "" : fmt::format("; before the signal: {}", state.failure);
    if (state.drained == 0) return fmt::format("interrupted by {}; no worker was running{}", name, failure);
    return fmt::format("interrupted by {}: {} stopped on {} node{}", name, counted(state.drained, "worker"),
                       inflect(state.node_count, "1", "this"), failure);
}

std::string describe_stop_wait(const State& state, TimePoint now) {
    std::vector<int> ranks;
    for (const LocalRank rank : state.running) ranks.push_back(state.rank_base + number(rank));
    const auto left = std::chrono::ceil<std::chrono::seconds>(*state.deadline - now);
    const std::string waited_for =
        ranks.empty() ? "the processes that the workers have started"
                      : fmt::format("{} to end ({})", counted(ranks.size(), "worker"), name_rank_ranges(ranks));
    return fmt::format("got {}: waiting up to {} for {}; {} kills them now", signal_name(*state.stop_signal),
                       seconds_text(left), waited_for,
                       *state.stop_signal == SIGINT ? "Ctrl-C again" : "another SIGTERM");
}

std::string describe_fate_of_workers(const State& state) {
    if (state.phase == Phase::kSucceeded)
        return ". The workers of this node had all exited with 0, but the job's end is unknown";
    if (state.phase != Phase::kRunning && state.phase != Phase::kStopping) return "";
    if (state.slots == 1) return ". The worker of this node was stopped";
    return fmt::format(". The {} workers of this node were stopped", state.slots);
}

}  // namespace ddprun::agent::worker_group

#include "agent/recorder_service.hpp"

#include <utility>

#include "agent/workers/environment.hpp"

namespace ddprun::agent {

RecorderService::RecorderService(const AgentConfig& config, TrySend try_send)
    : config_(config), try_send_(std::move(try_send)), stalls_(config.stall_warning) {}

void RecorderService::reset() {
    stalls_.reset();
    stopped_since_.clear();
}

void RecorderService::check_for_stalls(const RecordedWorkers& workers, const std::set<LocalRank>& running,
                                       TimePoint now) {
    for (const LocalRank rank : running) {
        report_stall(workers, rank, false);
        // The kernel does not report when a process was stopped, so the first look that finds it stopped counts.
        (void)stopped_for(rank, workers.processes.process_state(rank), now);
    }
}

std::optional<Duration> RecorderService::stopped_for(LocalRank rank, std::optional<ProcessState> process,
                                                     TimePoint now) {
    if (process != ProcessState::kStopped) {
        stopped_since_.erase(rank);
        return std::nullopt;
    }
    return now - stopped_since_.try_emplace(rank, now).first->second;
}

void RecorderService::report_stall(const RecordedWorkers& workers, LocalRank rank, bool only_timeouts) {
    const Rank job_rank = rank_of(workers.assignment, rank);
    const protocol::FlightRecord record = workers.processes.flight_record(rank, 0);
    auto stall = stalls_.look(job_rank, record);
    if (!stall || (only_timeouts && !stall->timed_out)) return;
    stall->generation = workers.assignment.generation;
    if (try_send_(*stall)) stalls_.set_reported(job_rank, record);  // else it is reported on the next connection
}

void RecorderService::send_record(const RecordedWorkers& workers, const protocol::RequestRecords& request,
                                  LocalRank rank, bool last, TimePoint now) {
    protocol::RecordReply reply;
    reply.generation = request.generation;
    reply.request = request.request;
    reply.last = last;
    reply.record = workers.processes.rank_record(rank, static_cast<std::size_t>(request.operations));
    reply.record.rank = rank_of(workers.assignment, rank);
    reply.record.host = config_.node_name;
    reply.record.stopped_for = stopped_for(rank, reply.record.process, now);
    reply.record.wall_clock_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    (void)try_send_(std::move(reply));  // a daemon that cannot be reached now does not wait for it any more
}

}  // namespace ddprun::agent

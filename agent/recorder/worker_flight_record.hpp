#pragma once
// WorkerFlightRecord: owns the memory into which a worker writes its flight record (docs/design/010). The agent makes
// it before the worker, so that it stays readable however the worker ends; the worker can neither shrink nor grow it.
// Owned by Worker; one thread.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/step_times.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/protocol/flight_record.hpp"

namespace ddprun::flight_record {
struct Memory;
}

namespace ddprun::agent {

/// What a worker is to know about a preemption (flight_record::Preemption).
struct PreemptionState {
    bool noticed = false;
    std::uint64_t stop_at = 0;  ///< the call of agree_to_stop() in which it stops; 0: not agreed yet
};

class WorkerFlightRecord {
public:
    /// Makes an empty record. Errors: no descriptor or memory is left.
    [[nodiscard]] static Result<WorkerFlightRecord> make();
    ~WorkerFlightRecord();
    WorkerFlightRecord(WorkerFlightRecord&& other) noexcept;
    WorkerFlightRecord& operator=(WorkerFlightRecord&&) = delete;

    /// Returns the descriptor that the worker inherits, until handed_over().
    [[nodiscard]] int descriptor() const { return descriptor_.get(); }
    /// Closes this process's descriptor: the worker has inherited it.
    void handed_over() { descriptor_.reset(); }

    /// Returns the record as it is now: the newest `max_operations`, and up to 32 older ones that are in progress. If
    /// `max_operations` is 0: all that are in progress.
    [[nodiscard]] protocol::FlightRecord view(std::size_t max_operations) const;
    /// Writes what the worker is to know about a preemption.
    void set(const PreemptionState& words);
    /// Returns how often the worker has called agree_to_stop().
    [[nodiscard]] std::uint64_t stop_calls() const;
    /// Writes the greatest step that an earlier group had begun; absent: none.
    void set_steps_before(std::optional<std::uint64_t> latest);
    /// Notes for the worker that it has begun a step.
    void note_step(std::uint64_t step);
    /// Returns how far the training has come, as its program has noted it.
    [[nodiscard]] StepTimes steps() const;
    /// Returns the pid that the writing process has entered; 0: none so far.
    [[nodiscard]] pid_t writer() const;

private:
    WorkerFlightRecord(UniqueFd descriptor, flight_record::Memory* memory)
        : descriptor_(std::move(descriptor)), memory_(memory) {}

    UniqueFd descriptor_;
    flight_record::Memory* memory_;  ///< the agent writes only to `preemption` and `steps`
};

}  // namespace ddprun::agent

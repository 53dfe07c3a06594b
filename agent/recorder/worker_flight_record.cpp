#include "agent/recorder/worker_flight_record.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include "agent/recorder/read_flight_record.hpp"
#include "common/flight_record_layout.hpp"

namespace ddprun::agent {
namespace {

/// The greatest integer that JSON holds exactly.
constexpr std::uint64_t kMaxStep = std::uint64_t{1} << 53;

}  // namespace

Result<WorkerFlightRecord> WorkerFlightRecord::make() {
    UniqueFd descriptor(::memfd_create("ddprun-flight-record", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!descriptor) return system_error("cannot make a flight record", errno);
    constexpr std::size_t kSize = sizeof(flight_record::Memory);
    const std::uint64_t head[] = {flight_record::kMagic, kSize};
    static_assert(offsetof(flight_record::Memory, magic) == 0 &&
                  offsetof(flight_record::Memory, bytes) == sizeof head[0]);
    if (::ftruncate(descriptor.get(), kSize) != 0 ||
        ::pwrite(descriptor.get(), head, sizeof head, 0) != static_cast<ssize_t>(sizeof head) ||
        ::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_error("cannot make a worker's flight record (ulimit -f limits it too)", errno);
    }
    void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
    if (memory == MAP_FAILED) return system_error("cannot map a flight record", errno);
    return WorkerFlightRecord(std::move(descriptor), static_cast<flight_record::Memory*>(memory));
}

WorkerFlightRecord::~WorkerFlightRecord() {
    if (memory_ != nullptr) ::munmap(memory_, sizeof(flight_record::Memory));
}

WorkerFlightRecord::WorkerFlightRecord(WorkerFlightRecord&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), memory_(std::exchange(other.memory_, nullptr)) {}

void WorkerFlightRecord::set(const PreemptionState& words) {
    memory_->preemption.stop_at.store(words.stop_at);
    memory_->preemption.noticed.store(words.noticed ? 1 : 0);
}

std::uint64_t WorkerFlightRecord::stop_calls() const { return memory_->preemption.calls.load(); }

void WorkerFlightRecord::set_steps_before(std::optional<std::uint64_t> latest) {
    memory_->steps.begun_before.store(latest ? *latest + 1 : 0);
}

void WorkerFlightRecord::note_step(std::uint64_t step) {
    const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
    flight_record::note_step(memory_->steps, step, now.count());
}

StepTimes WorkerFlightRecord::steps() const {
    const flight_record::Steps& steps = memory_->steps;
    StepTimes times;
    const std::uint64_t begun = steps.begun.load();
    if (begun == 0) return times;
    times.latest = std::min(begun - 1, kMaxStep);
    const auto time_of = [](std::int64_t nanoseconds) -> std::optional<TimePoint> {
        if (nanoseconds <= 0) return std::nullopt;
        return std::min(TimePoint(std::chrono::nanoseconds(nanoseconds)), Clock::now());
    };
    times.first_at = time_of(steps.first_at.load());
    times.new_at = time_of(steps.new_at.load());
    return times;
}

pid_t WorkerFlightRecord::writer() const {
    const std::int64_t pid = memory_->pid.load();
    return pid > 0 && pid <= INT32_MAX ? static_cast<pid_t>(pid) : 0;
}

protocol::FlightRecord WorkerFlightRecord::view(std::size_t max_operations) const {
    return read_flight_record(*memory_, Clock::now(), max_operations);
}

}  // namespace ddprun::agent

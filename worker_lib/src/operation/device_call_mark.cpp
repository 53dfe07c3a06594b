#include "worker_lib/src/operation/device_call_mark.hpp"

#include "common/text/cut.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"
#include "worker_lib/src/recorder/recording.hpp"

namespace ddp::detail {

DeviceCallMark DeviceCallMark::of_device(int device) {
    FlightRecorder* const recorder = process_recorder();
    return DeviceCallMark(recorder != nullptr ? recorder->device_call(device) : nullptr);
}

void DeviceCallMark::enter(std::string_view call, std::uint64_t operation, ddprun::TimePoint since) const {
    if (slot_ == nullptr) return;
    ddprun::flight_record::DeviceCall entry;
    entry.since = nanoseconds(since);
    entry.operation = operation;
    ddprun::copy_cut(entry.call, call);
    store(entry);
}

void DeviceCallMark::leave() const {
    if (slot_ != nullptr) store({});
}

void DeviceCallMark::store(const ddprun::flight_record::DeviceCall& call) const {
    if (!is_fork.load(std::memory_order_relaxed)) slot_->store(call);
}

}  // namespace ddp::detail

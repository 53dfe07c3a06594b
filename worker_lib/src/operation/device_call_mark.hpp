#pragma once
// DeviceCallMark: writes into the flight record in which call of NCCL or of the CUDA driver the thread of a device is,
// so that a call that does not return is found in the record of a worker that hangs, or was killed. A mark costs a few
// plain stores. One thread uses it, "ddp-nccl".

#include <cstdint>
#include <string_view>

#include "common/clock.hpp"
#include "common/flight_record_layout.hpp"

namespace ddp::detail {

class DeviceCallMark {
public:
    /// Marks nothing.
    DeviceCallMark() = default;
    /// `slot` may be null.
    explicit DeviceCallMark(ddprun::flight_record::Guarded<ddprun::flight_record::DeviceCall>* slot) : slot_(slot) {}
    /// Returns the mark of a CUDA device in the flight record of this process; an empty one if there is no such record,
    /// or no room in it.
    [[nodiscard]] static DeviceCallMark of_device(int device);

    /// Records that the thread has been in a call since `since`.
    /// operation   the number of the entry that the call is for; 0: it has none
    void enter(std::string_view call, std::uint64_t operation, ddprun::TimePoint since) const;
    /// Records that the thread is in no call.
    void leave() const;

private:
    void store(const ddprun::flight_record::DeviceCall& call) const;

    ddprun::flight_record::Guarded<ddprun::flight_record::DeviceCall>* slot_ = nullptr;
};

}  // namespace ddp::detail

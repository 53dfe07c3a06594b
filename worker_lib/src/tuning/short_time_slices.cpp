#include "worker_lib/src/tuning/short_time_slices.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ddp::detail {

namespace {

/// The kernel's struct sched_attr in its first version. The headers that declare it (the C library's, the kernel's)
/// exclude each other on some systems.
struct SchedulingAttributes {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void request_short_time_slices() {
    SchedulingAttributes attributes{};
    if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return;  // the program has chosen another policy
    attributes.runtime = static_cast<std::uint64_t>(std::chrono::nanoseconds(kShortTimeSlice).count());
    ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // if it is refused, nothing changes
}

}  // namespace ddp::detail

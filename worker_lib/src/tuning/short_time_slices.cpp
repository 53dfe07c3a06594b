#include "worker_lib/src/native/short_turns.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ddp::detail {

namespace {

/// The kernel's struct sched_attr in its first version: neither the C library's header nor the kernel's can be included
/// everywhere.
struct SchedulingAttributes {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void take_short_turns() {
    SchedulingAttributes attributes{};
    if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return;  // whoever chose another one knows better
    attributes.runtime = static_cast<std::uint64_t>(std::chrono::nanoseconds(kShortTurn).count());
    ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish: where it is refused all goes as before
}

}  // namespace ddp::detail

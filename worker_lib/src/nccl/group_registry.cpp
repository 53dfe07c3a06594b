#include "worker_lib/src/nccl/group_registry.hpp"

#include "worker_lib/src/nccl/watchdog.hpp"

namespace ddp::detail {

GroupRegistry& GroupRegistry::of_process() {
    static GroupRegistry& registry = *new GroupRegistry;
    return registry;
}

void GroupRegistry::add(Watchdog& watchdog) {
    const ddprun::Lock lock(mutex_);
    watchdogs_.push_back(&watchdog);
}

void GroupRegistry::remove(const Watchdog& watchdog) {
    const ddprun::Lock lock(mutex_);
    std::erase(watchdogs_, &watchdog);
}

void GroupRegistry::pass_on(const Failure& failure, const Watchdog& from) {
    const ddprun::Lock lock(mutex_);
    for (Watchdog* const other : watchdogs_)
        if (other != &from && other->device_index() == from.device_index()) other->hear(failure, from.peers());
}

}  // namespace ddp::detail

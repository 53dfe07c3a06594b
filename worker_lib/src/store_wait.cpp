#include "worker_lib/src/store_wait.hpp"

#include "worker_lib/src/group.hpp"

namespace ddp::detail {

WaitAtStore::WaitAtStore(BoardPlace& place, const StoreStep& step) : ticket_(place.queue(step, ddprun::Clock::now())) {
    ticket_.started();
    ticket_.waited(true);
}

WaitAtStore GroupImpl::wait_at_store(StoreStep step) {
    const std::lock_guard lock(mutex_);
    if (!store_place_) store_place_.emplace(spec_, spec_.name + " (store)");
    step.seq = ++store_steps_;
    return WaitAtStore(*store_place_, step);
}

}  // namespace ddp::detail

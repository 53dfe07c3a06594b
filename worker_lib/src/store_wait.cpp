#include "worker_lib/src/store_wait.hpp"

#include "worker_lib/src/group.hpp"

namespace ddp::detail {

WaitAtStore::WaitAtStore(BoardPlace& place, const StoreStep& step) : ticket_(place.queue(step, ddprun::Clock::now())) {
    ticket_.started();
    ticket_.waited(true);
}

WaitAtStore GroupImpl::wait_at_store(std::string_view what, std::string_view tag) {
    const std::lock_guard lock(mutex_);
    if (!store_place_) store_place_.emplace(spec_, spec_.name + " (store)");
    return WaitAtStore(*store_place_, {.what = what, .tag = tag, .seq = ++store_steps_});
}

}  // namespace ddp::detail

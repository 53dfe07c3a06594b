#include "worker_lib/src/store_wait.hpp"

namespace ddp::detail {

GroupImpl::StoreWait::StoreWait(GroupImpl& group, std::string_view what, std::string_view tag) {
    const std::lock_guard lock(group.mutex_);
    if (!group.store_place_) group.store_place_.emplace(group.spec_, group.spec_.name + " (store)");
    const StoreStep step{what, tag, ++group.store_steps_};
    ticket_ = group.store_place_->queue(step, ddprun::Clock::now());
    ticket_.started();
    ticket_.waited(true);
}

}  // namespace ddp::detail

#include "worker_lib/src/group/store_wait.hpp"

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp::detail {

WaitAtStore::WaitAtStore(GroupRecorder& recorder, const StoreStep& step)
    : entry_(recorder.queue(step, ddprun::Clock::now())) {
    entry_.started();
    entry_.waited(true);
}

WaitAtStore GroupImpl::wait_at_store(StoreStep step) {
    const ddprun::Lock lock(mutex_);
    if (!store_recorder_) store_recorder_.emplace(spec_, spec_.name + " (store)");
    step.seq = ++store_steps_;
    return WaitAtStore(*store_recorder_, step);
}

}  // namespace ddp::detail

#include "worker_lib/src/group/control_group.hpp"

#include "worker_lib/src/group/group_impl.hpp"

namespace ddp::detail {

bool is_for_control_group(const Operation& operation) {
    if (operation.kind == OpKind::kBarrier) return operation.stream.handle == nullptr;
    return operation.buffer.device == Device::Cpu && (!operation.output || operation.output->device == Device::Cpu);
}

ControlGroup::ControlGroup() = default;
ControlGroup::~ControlGroup() = default;

GroupImpl& ControlGroup::get(const Connect& connect) {
    if (GroupImpl* const made = if_made()) return *made;
    const ddprun::Lock lock(mutex_);
    if (!twin_) {
        twin_ = connect();
        made_.store(twin_.get(), std::memory_order_release);
    }
    return *twin_;
}

}  // namespace ddp::detail

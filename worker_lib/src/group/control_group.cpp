#include "worker_lib/src/group/control_group.hpp"

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp::detail {

bool is_for_control_group(const Operation& operation) {
    if (operation.kind == OpKind::kReplay) return false;
    if (operation.kind == OpKind::kBarrier) return operation.stream.handle == nullptr;
    const auto is_host_memory = [](const Buffer& buffer) {
        return buffer.device == Device::Cpu && device_memory_complaint(buffer, "", "").empty();
    };
    return is_host_memory(operation.buffer) && (!operation.output || is_host_memory(*operation.output));
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

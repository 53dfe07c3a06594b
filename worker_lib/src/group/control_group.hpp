#pragma once
// ControlGroup: the native twin of a group whose backend takes device memory only. Barriers, and operations on host
// memory, go there. See docs/design/036-control-group.md.

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "common/mutex.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/operation/operation.hpp"

namespace ddp::detail {

class GroupImpl;

/// Returns whether the operation belongs there: its buffers are host memory, or it is a barrier without a stream.
/// Device memory that is declared as host memory does not: the twin would be made, which needs all ranks, to refuse it.
[[nodiscard]] bool is_for_control_group(const Operation& operation);

/// Owned by the GroupImpl whose twin it holds, and made with it; the twin is made on first need. Any thread.
class ControlGroup {
public:
    /// connect   makes and returns the twin. Collective
    using Connect = std::function<std::unique_ptr<GroupImpl>()>;

    ControlGroup();
    ~ControlGroup();
    ControlGroup(const ControlGroup&) = delete;
    ControlGroup& operator=(const ControlGroup&) = delete;

    /// Returns the twin, which the first call makes by `connect`. Throws its error.
    [[nodiscard]] GroupImpl& get(const Connect& connect) EXCLUDES(mutex_);
    /// Returns the twin; null: nothing has needed it yet.
    [[nodiscard]] GroupImpl* if_made() const { return made_.load(std::memory_order_acquire); }

private:
    ddprun::Mutex mutex_;  ///< held while the twin is made
    std::unique_ptr<GroupImpl> twin_ GUARDED_BY(mutex_);
    std::atomic<GroupImpl*> made_{nullptr};
};

}  // namespace ddp::detail

#pragma once
// BackendHandle: the reference of works to the backend of their group, which they may outlive.

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/operation/work_state.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

/// The backend makes it, and shuts it when it ends. Any thread may call it. It counts the
/// calls inside instead of locking them: a callback that runs inside may drop a work of its own, and so enter again.
template <typename Backend>
class BackendHandle {
public:
    BackendHandle(Backend& backend, Participant owner) : backend_(backend), owner_(std::move(owner)) {}

    [[nodiscard]] const Participant& owner() const { return owner_; }

    /// Calls use(backend) and keeps the backend from ending until that returns. Returns false, without a call, if the
    /// backend has shut the handle or belongs to the parent of this process.
    template <typename Use>
    bool with(Use use) {
        if (home_.is_elsewhere()) return false;  // after a fork(): a copy of the queue, without its threads
        const Visit visit(inside_);
        if (visit.admitted) use(backend_);
        return visit.admitted;
    }
    /// Refuses new calls, and waits for those that are inside.
    void shut() {
        inside_.fetch_or(kShut, std::memory_order_acq_rel);
        for (auto now = inside_.load(std::memory_order_acquire); now != kShut;
             now = inside_.load(std::memory_order_acquire)) {
            inside_.wait(now, std::memory_order_acquire);
        }
    }

private:
    static constexpr std::uint32_t kShut = 1u << 31;

    /// Counts one call while it is inside.
    struct Visit {
        explicit Visit(std::atomic<std::uint32_t>& count)
            : inside(count), admitted((count.fetch_add(1, std::memory_order_acquire) & kShut) == 0) {}
        ~Visit() {
            if (inside.fetch_sub(1, std::memory_order_release) == kShut + 1) inside.notify_all();
        }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

        std::atomic<std::uint32_t>& inside;
        const bool admitted;
    };

    Backend& backend_;
    const Participant owner_;
    const ProcessMark home_;
    std::atomic<std::uint32_t> inside_{0};
};

/// Aborts the group of `work` because of it, also the operations before an earlier failure. Returns false if its
/// backend has ended.
template <typename Backend>
bool abort_by(const WorkState& work, std::string_view reason, BackendHandle<Backend>& handle) {
    return handle.with([&](Backend& backend) {
        if (!backend.failure()) work.note_abort(reason);
        backend.abort(reason);
    });
}

}  // namespace ddp::detail

#pragma once
// NativeWork: a Work whose operation the waiting thread runs itself when no other thread does. It may outlive its
// backend, which it reaches through a BackendHandle.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "worker_lib/src/native/protocol/signature.hpp"
#include "worker_lib/src/operation/work_state.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp::detail {

class NativeBackend;

/// The reference of works to their backend, which the backend shuts when it ends. Any thread may call it. It counts the
/// calls inside instead of locking them: a callback that runs inside may drop a work of its own, and so enter again.
class BackendHandle {
public:
    BackendHandle(NativeBackend& backend, Participant owner) : backend_(backend), owner_(std::move(owner)) {}

    [[nodiscard]] const Participant& owner() const { return owner_; }

    /// Calls use(backend) unless the backend has shut the handle, and keeps the backend from ending until that returns.
    template <typename Use>
    void with(Use use) {
        if (home_.is_elsewhere()) return;  // after a fork(): a copy of the queue, without its threads
        const Visit visit(inside_);
        if (visit.admitted) use(backend_);
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

    NativeBackend& backend_;
    const Participant owner_;
    const ProcessMark home_;
    std::atomic<std::uint32_t> inside_{0};
};

class NativeWork final : public WorkState {
public:
    NativeWork(const Operation& operation, std::shared_ptr<BackendHandle> backend)
        : WorkState(operation.seq, operation.deadline, operation.record_entry),
          signature_(signature_of(operation)),
          backend_(std::move(backend)) {}

    [[nodiscard]] const Participant& owner() const override { return backend_->owner(); }
    [[nodiscard]] std::string text() const override { return describe(signature_); }
    void help() override;
    void hurry() override;

private:
    const Signature signature_;
    const std::shared_ptr<BackendHandle> backend_;
};

}  // namespace ddp::detail

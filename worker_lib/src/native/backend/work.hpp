#pragma once
// NativeWork: a Work whose operation the waiting thread runs itself when nobody else does. It outlives its backend:
// what is left of that is BackendHandle.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/forks.hpp"
#include "worker_lib/src/native/signature.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp::detail {

class NativeBackend;

/// The way from works to their backend, shut when that goes. Counted rather than locked: a callback that runs inside
/// may drop a work of its own and so come in once more.
class BackendHandle {
public:
    BackendHandle(NativeBackend& backend, Participant owner) : backend_(backend), owner_(std::move(owner)) {}

    [[nodiscard]] const Participant& owner() const { return owner_; }

    /// Calls use(backend) unless it is gone, and keeps it from going until that returns.
    template <typename Use>
    void with(Use use) {
        if (home_.is_elsewhere()) return;  // a copy of the queue, and threads that are not here
        const Visit visit(inside_);
        if (visit.admitted) use(backend_);
    }
    /// Waits for those who are inside.
    void shut() {
        inside_.fetch_or(kShut, std::memory_order_acq_rel);
        for (auto now = inside_.load(std::memory_order_acquire); now != kShut;
             now = inside_.load(std::memory_order_acquire)) {
            inside_.wait(now, std::memory_order_acquire);
        }
    }

private:
    static constexpr std::uint32_t kShut = 1u << 31;

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
        : WorkState(operation.seq, operation.deadline, operation.ticket),
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

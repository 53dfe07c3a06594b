#pragma once
// NativeWork: a Work whose operation the waiting thread runs itself when nobody else does. It outlives its backend:
// what is left of that is BackendHandle.

#include <memory>
#include <shared_mutex>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp::detail {

class NativeBackend;

/// The way from works to their backend, shut when that goes.
class BackendHandle {
public:
    explicit BackendHandle(NativeBackend& backend) : backend_(&backend) {}

    /// Calls use(backend) unless it is gone, and keeps it from going until that returns.
    template <typename Use>
    void with(Use use) {
        const std::shared_lock lock(mutex_);
        if (backend_ != nullptr) use(*backend_);
    }
    /// Waits for those who are inside.
    void shut() {
        const std::unique_lock lock(mutex_);
        backend_ = nullptr;
    }

private:
    std::shared_mutex mutex_;
    NativeBackend* backend_;
};

class NativeWork final : public WorkState {
public:
    NativeWork(const Operation& operation, std::shared_ptr<BackendHandle> backend)
        : WorkState(operation.seq, operation.deadline, operation.ticket), backend_(std::move(backend)) {}

    void help() override;
    void hurry() override;

private:
    const std::shared_ptr<BackendHandle> backend_;
};

}  // namespace ddp::detail

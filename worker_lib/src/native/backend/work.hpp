#pragma once
// NativeWork: a Work whose operation the waiting thread runs itself when no other thread does. It may outlive its
// backend, which it reaches through a BackendHandle.

#include <memory>
#include <string_view>
#include <utility>

#include "worker_lib/src/group/backend_handle.hpp"
#include "worker_lib/src/native/protocol/signature.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

class NativeBackend;

class NativeWork final : public WorkState {
public:
    NativeWork(const Operation& operation, std::shared_ptr<BackendHandle<NativeBackend>> backend)
        : WorkState(operation.seq, operation.deadline, operation.record_entry),
          signature_(signature_of(operation)),
          backend_(std::move(backend)) {}

    [[nodiscard]] const Participant& owner() const override { return backend_->owner(); }
    [[nodiscard]] std::string text() const override { return describe(signature_); }
    void help() override;
    void hurry() override;
    bool abort_group(std::string_view reason) override;

private:
    const Signature signature_;
    const std::shared_ptr<BackendHandle<NativeBackend>> backend_;
};

}  // namespace ddp::detail

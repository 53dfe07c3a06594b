#include "worker_lib/src/native/backend/work.hpp"

#include "worker_lib/src/native/backend/backend.hpp"

namespace ddp::detail {

void NativeWork::help() {
    if (done()) return;
    (void)backend_->with([this](NativeBackend& backend) { backend.help(*this); });
}

void NativeWork::hurry() {
    if (done()) return;
    (void)backend_->with([](NativeBackend& backend) { backend.hurry(); });
}

bool NativeWork::abort_group(std::string_view reason) { return abort_by(*this, reason, *backend_); }

}  // namespace ddp::detail

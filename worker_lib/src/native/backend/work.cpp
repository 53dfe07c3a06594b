#include "worker_lib/src/native/backend/work.hpp"

#include "worker_lib/src/native/backend/backend.hpp"

namespace ddp::detail {

void NativeWork::help() {
    if (done()) return;
    backend_->with([this](NativeBackend& backend) { backend.help(*this); });
}

void NativeWork::hurry() {
    if (done()) return;
    backend_->with([](NativeBackend& backend) { backend.hurry(); });
}

}  // namespace ddp::detail

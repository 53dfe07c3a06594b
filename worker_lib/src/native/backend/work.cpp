#include "worker_lib/src/native/native_work.hpp"

#include "worker_lib/src/native/native_backend.hpp"

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

#include "worker_lib/src/native/backend/work.hpp"

#include "worker_lib/src/native/backend/backend.hpp"

namespace ddp::detail {

std::uint64_t NativeWork::signs_of_life() const {
    std::uint64_t signs = 0;
    backend_->with([&signs](NativeBackend& backend) { signs = backend.signs_of_life(); });
    return signs;
}

void NativeWork::help() {
    if (done()) return;
    backend_->with([this](NativeBackend& backend) { backend.help(*this); });
}

void NativeWork::hurry() {
    if (done()) return;
    backend_->with([](NativeBackend& backend) { backend.hurry(); });
}

}  // namespace ddp::detail

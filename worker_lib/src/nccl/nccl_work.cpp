#include "worker_lib/src/nccl/nccl_work.hpp"

#include <utility>

namespace ddp::detail {

NcclWork::NcclWork(Operation operation, std::shared_ptr<GroupDevice> device, std::shared_ptr<const Participant> owner)
    : WorkState(operation.seq, operation.deadline, operation.ticket),
      operation_(std::move(operation)),
      device_(std::move(device)),
      owner_(std::move(owner)) {
    end_ = device_->acquire_event();
}

NcclWork::~NcclWork() { device_->release(end_); }

cudaError_t NcclWork::record_end(bool launched) {
    const cudaError_t error = device_->cuda().event_record(end_, device_->stream());
    recorded_ = error == cudaSuccess;
    launched_ = recorded_ && launched;
    return error;
}

cudaError_t NcclWork::query() const { return recorded_ ? device_->cuda().event_query(end_) : cudaErrorNotReady; }

void NcclWork::its_turn() {
    if (launched_ && !std::exchange(begun_, true)) begin();
}

void NcclWork::wait() {
    if (blocks_host() || done()) return WorkState::wait();  // when done: throws its error, or returns at once
    const auto stream = static_cast<cudaStream_t>(operation_.stream.handle);
    check_cuda(device_->cuda(), device_->cuda().stream_wait_event(stream, end_, 0), "cudaStreamWaitEvent");
}

}  // namespace ddp::detail

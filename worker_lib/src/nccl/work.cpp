#include "worker_lib/src/nccl/work.hpp"

#include <utility>

#include "worker_lib/src/nccl/arguments.hpp"

namespace ddp::detail {

namespace {

RecordEntry entry_of(const NcclTask& task) {
    const auto* const operation = std::get_if<Operation>(&task);
    return operation != nullptr ? operation->record_entry : RecordEntry();
}

}  // namespace

NcclWork::NcclWork(NcclTask task, std::shared_ptr<GroupDevice> device,
                   std::shared_ptr<BackendHandle<BackendImpl>> backend, ddprun::Duration abort_timeout)
    : WorkState(std::visit([](const auto& one) { return one.seq; }, task),
                std::visit([](const auto& one) { return one.deadline; }, task), entry_of(task)),
      task_(std::move(task)),
      device_(std::move(device)),
      backend_(std::move(backend)),
      abort_timeout_(abort_timeout) {}

NcclWork::~NcclWork() {
    for (CUevent event : {start_, end_})
        if (event != nullptr) device_->release(event);
}

void NcclWork::prepare() {
    start_ = device_->acquire_event();
    end_ = device_->acquire_event();
}

void NcclWork::record_start() {
    check_cuda(device_->cuda(), device_->cuda().event_record(start_, device_->stream()), "cuEventRecord");
}

bool NcclWork::is_barrier_of_hosts() const {
    const auto* const operation = std::get_if<Operation>(&task_);
    return operation != nullptr && operation->kind == OpKind::kBarrier && operation->stream.handle == nullptr;
}

CUstream NcclWork::caller() const {
    return static_cast<CUstream>(std::visit([](const auto& one) { return one.stream.handle; }, task_));
}

std::string NcclWork::text() const {
    return std::visit([](const auto& one) { return describe(one); }, task_);
}

void NcclWork::note_waiter(bool blocked) const {
    WorkState::note_waiter(blocked);
    if (const auto* const batch = std::get_if<TransferList>(&task_)) {
        for (const RecordEntry& record_entry : batch->record_entries) record_entry.waited(blocked);
    }
}

void NcclWork::note_peer_failed() const {
    WorkState::note_peer_failed();
    if (const auto* const batch = std::get_if<TransferList>(&task_)) {
        for (const RecordEntry& record_entry : batch->record_entries) record_entry.peer_failed();
    }
}

void NcclWork::note_end(bool well, bool timed_out) const {
    WorkState::note_end(well, timed_out);
    if (const auto* const batch = std::get_if<TransferList>(&task_)) {
        for (const RecordEntry& record_entry : batch->record_entries) record_entry.ended(well, timed_out);
    }
}

void NcclWork::note_abort(std::string_view reason) const {
    const auto* const batch = std::get_if<TransferList>(&task_);
    if (batch == nullptr) return WorkState::note_abort(reason);
    if (!batch->record_entries.empty()) batch->record_entries.front().aborted(reason);
}

CUresult NcclWork::record_end(bool launched) {
    const CUresult error = device_->cuda().event_record(end_, device_->stream());
    recorded_ = error == CUDA_SUCCESS;
    launched_ = recorded_ && launched;
    return error;
}

CUresult NcclWork::query() const { return recorded_ ? device_->cuda().event_query(end_) : CUDA_ERROR_NOT_READY; }

void NcclWork::mark_begun(bool ended) {
    if (begun_ || !launched_) return;
    if (!ended && device_->cuda().event_query(start_) != CUDA_SUCCESS) return;  // query() reports an error
    begun_ = true;
    begin();
}

void NcclWork::wait() {
    if (blocks_host() || done()) return WorkState::wait();  // when done: throws its error, or returns at once
    const DeviceScope scope(*device_);                      // Stream{} is this device's default stream
    if (const auto wrong = wait_complaint(device_->cuda(), caller()); !wrong.empty()) refuse(*this, wrong);
    check_cuda(device_->cuda(), device_->cuda().stream_wait_event(caller(), end_, 0), "cuStreamWaitEvent");
}

}  // namespace ddp::detail

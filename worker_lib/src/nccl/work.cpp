#include "worker_lib/src/nccl/work.hpp"

#include <optional>
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
                   std::shared_ptr<BackendHandle<BackendImpl>> backend, ddprun::Duration longest_abort, bool captured)
    : WorkState(std::visit([](const auto& one) { return one.seq; }, task),
                std::visit([](const auto& one) { return one.deadline; }, task), entry_of(task)),
      task_(std::move(task)),
      device_(std::move(device)),
      backend_(std::move(backend)),
      longest_abort_(longest_abort),
      captured_(captured) {}

NcclWork::~NcclWork() {
    for (CUevent event : {start_, end_})
        if (event != nullptr) device_->release(event);
}

void NcclWork::record_caller() {
    if (captured_) return;
    start_ = device_->acquire_event();
    end_ = device_->acquire_event();
    if (!is_barrier_of_hosts()) record_on_callers_stream(device_->cuda(), start_, *this, device_->index());
}

void NcclWork::follow_caller() {
    if (captured_) return;  // it is on the caller's stream
    const CudaApi& cuda = device_->cuda();
    if (!is_barrier_of_hosts())
        check_cuda(cuda, cuda.stream_wait_event(device_->stream(), start_, 0), "cuStreamWaitEvent");
    // The wait is for the record that it has met, so the event can be recorded again.
    check_cuda(cuda, cuda.event_record(start_, device_->stream()), "cuEventRecord");
}

void NcclWork::record_end() {
    if (!captured_) check_cuda(device_->cuda(), device_->cuda().event_record(end_, device_->stream()), "cuEventRecord");
    launched_.store(true, std::memory_order_release);
    settle();
}

void NcclWork::settle() {
    settled_.store(true, std::memory_order_release);
    settled_.notify_all();
}

std::vector<WorkState::Callback> NcclWork::finish(std::exception_ptr error) {
    auto callbacks = end(std::move(error));
    settle();
    return callbacks;
}

bool NcclWork::is_barrier_of_hosts() const {
    const auto* const operation = std::get_if<Operation>(&task_);
    return operation != nullptr && operation->kind == OpKind::kBarrier && operation->stream.handle == nullptr;
}

bool NcclWork::is_replay() const {
    const auto* const operation = std::get_if<Operation>(&task_);
    return operation != nullptr && operation->kind == OpKind::kReplay;
}

CUstream NcclWork::caller() const {
    return static_cast<CUstream>(std::visit([](const auto& one) { return one.stream.handle; }, task_));
}

std::string NcclWork::text() const {
    return std::visit([](const auto& one) { return describe(one); }, task_);
}

std::uint64_t NcclWork::entry_id() const {
    const auto* const batch = std::get_if<TransferList>(&task_);
    if (batch == nullptr) return entry_of(task_).claim().id;
    return batch->record_entries.empty() ? 0 : batch->record_entries.front().claim().id;
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

CUresult NcclWork::query() const { return captured_ ? CUDA_SUCCESS : device_->cuda().event_query(end_); }

void NcclWork::mark_begun(bool ended) {
    if (begun_) return;
    if (!ended && device_->cuda().event_query(start_) != CUDA_SUCCESS) return;  // query() reports an error
    begun_ = true;
    begin();
}

void NcclWork::wait() {
    if (is_barrier_of_hosts()) return WorkState::wait();
    // A wait for an event that has not been recorded would be none. The queue fails what it cannot launch in time.
    await_launch();
    if (captured_ && launched()) return;
    if (captured_) {  // the abort, and so the end of the operation, waits for the end of the capture
        std::optional<Error> failure;
        (void)backend_->with([&](BackendImpl& backend) { failure = backend.failure(); });
        if (failure) throw Error(*failure);
    }
    if (done() || !launched()) return WorkState::wait();  // throws the error, or returns at once
    const DeviceScope scope(*device_);                    // Stream{} is this device's default stream
    if (const auto wrong = wait_complaint(device_->cuda(), caller()); !wrong.empty()) refuse(*this, wrong);
    check_cuda(device_->cuda(), device_->cuda().stream_wait_event(caller(), end_, 0), "cuStreamWaitEvent");
}

}  // namespace ddp::detail

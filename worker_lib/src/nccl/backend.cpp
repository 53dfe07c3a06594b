// NcclBackend: runs the operations of one group on its CUDA device. submit() and transfer() enqueue four steps and
// return: the group's stream waits for the work on the caller's stream, runs the operation, and records its start and
// its end in events. The watchdog follows those events; NcclWork::wait makes the caller's stream wait for them.

#include "worker_lib/src/nccl/backend.hpp"

#include <fmt/format.h>

#include <utility>

#include "worker_lib/src/cuda/device_arena.hpp"
#include "worker_lib/src/cuda/waiting.hpp"
#include "worker_lib/src/nccl/arguments.hpp"
#include "worker_lib/src/nccl/operations.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/unique_id.hpp"
#include "worker_lib/src/nccl/watchdog.hpp"

namespace ddp::detail {
namespace {

/// Owns the communicator, the device's stream and arena, and the watchdog. Any thread; launches are serialized.
class NcclBackend final : public BackendImpl {
public:
    NcclBackend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits);
    ~NcclBackend() override;

    [[nodiscard]] Backend kind() const override { return Backend::Nccl; }
    [[nodiscard]] std::unique_ptr<BackendImpl> make_another(const GroupSpec& spec) const override {
        return make_nccl_backend(spec, api_, limits_);
    }
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation&& operation, OperationRecord& record) override {
        record.write(operation, Announced::kNo);
        return enqueue(std::move(operation));
    }
    [[nodiscard]] QueuedBatch transfer(TransferList&& batch, TransferRecord& record) override {
        record.write(batch, Announced::kNo);
        return QueuedBatch(enqueue(std::move(batch)));
    }
    [[nodiscard]] Arena& arena() override { return *arena_; }
    void abort(std::string_view reason) override;
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const override {
        return WorkState::after_callbacks(this, std::move(end));
    }
    [[nodiscard]] bool is_in_callback() const override { return WorkState::is_in_callback(this); }
    [[nodiscard]] std::optional<Error> failure() const override;
    [[nodiscard]] std::string location_of(int rank) const override { return peers_->location_of(rank); }
    [[nodiscard]] int global_rank(int rank) const override { return peers_->global_rank(rank); }
    [[nodiscard]] RankState state_of(int rank) const override;

private:
    [[nodiscard]] std::shared_ptr<NcclWork> enqueue(NcclTask task) EXCLUDES(order_);
    void launch(const std::shared_ptr<NcclWork>& queued) REQUIRES(order_);
    void fail(const NcclWork& work, ErrorCode code, const std::string& text);
    void wait_for_caller(const NcclWork& work) REQUIRES(order_);
    [[nodiscard]] ncclResult_t start(const NcclTask& task, ncclComm_t comm) const;

    const GpuApi api_;
    const std::string own_rank_;
    const std::shared_ptr<BackendHandle<BackendImpl>> handle_;
    const int rank_;
    const int ranks_;
    const NcclLimits limits_;
    std::shared_ptr<GroupDevice> device_;
    std::shared_ptr<DeviceArena> arena_;  // shared with the thread that frees it
    void* barrier_word_ = nullptr;        // an i32 that stays 0
    ddprun::Mutex order_;                 // held during a launch: the order of calls is the order on the stream
    // Recorded on the caller's stream. A wait sees the record before it, so one event serves all operations.
    CUevent caller_done_ GUARDED_BY(order_) = nullptr;
    std::optional<Peers> peers_;
    std::unique_ptr<Communicator> communicator_;
    std::unique_ptr<Watchdog> watchdog_;  // after the communicator that it follows
};

NcclBackend::NcclBackend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits)
    : api_(api),
      own_rank_(own_rank_text(spec)),
      handle_(std::make_shared<BackendHandle<BackendImpl>>(
          *this,
          Participant{spec.name, name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], own_address()),
                      this})),
      rank_(spec.rank),
      ranks_(static_cast<int>(spec.members.size())),
      limits_(limits) {
    const ddprun::TimePoint deadline = ddprun::Clock::now() + spec.init_timeout;
    const UniqueIdExchange found = exchange_unique_id(api_.nccl, spec, deadline);
    peers_.emplace(spec, found.records);
    device_ = std::make_shared<GroupDevice>(api_.cuda, spec.device);
    communicator_ = std::make_unique<Communicator>(api_, spec, device_, found.id, deadline, limits_);
    arena_ = std::make_shared<DeviceArena>(device_);
    barrier_word_ = arena_->allocate(sizeof(std::int32_t));
    caller_done_ = device_->acquire_event();
    watchdog_ = std::make_unique<Watchdog>(own_rank_, *peers_, device_, *communicator_, limits_);
}

NcclBackend::~NcclBackend() {
    handle_->shut();
    watchdog_->end();               // fails the works in flight, and aborts the communicator then
    (void)communicator_->finish();  // does nothing after an abort
    device_->release(caller_done_);
    // cuMemFree waits for all kernels of the device. If one never ends, the memory stays with the thread that frees it.
    auto free = [arena = std::move(arena_), device = device_]() mutable {
        (void)device->begin_thread();
        arena.reset();
    };
    (void)run_bounded(std::move(free), ddprun::Clock::now() + limits_.abort_timeout);
}

std::shared_ptr<NcclWork> NcclBackend::enqueue(NcclTask task) {
    auto work = std::make_shared<NcclWork>(std::move(task), device_, handle_, limits_.abort_timeout);
    const ddprun::Lock lock(order_);
    if (!watchdog_->failure()) launch(work);
    watchdog_->watch(work);  // after a failure it only fails the work
    return work;
}

/// Puts the operation on the group's stream. Throws Error{InvalidArgument} for arguments that are found wrong before;
/// the group stays usable. Any later error fails the group and its works, also an error that NCCL finds in the
/// arguments: a non-blocking communicator keeps it and refuses all later calls.
void NcclBackend::launch(const std::shared_ptr<NcclWork>& queued) {
    NcclWork& work = *queued;
    std::optional<ncclResult_t> result;
    try {
        const DeviceScope scope(*device_);
        if (const auto wrong = argument_complaint(api_.cuda, work, device_->index()); !wrong.empty())
            refuse(work, wrong);
        work.prepare();
        wait_for_caller(work);
        work.record_start();
        const Watchdog::Expectation expectation(*watchdog_, queued);
        result = communicator_->call([&](ncclComm_t comm) { return start(work.task(), comm); }, work.deadline());
        const CUresult recorded = work.record_end(result == ncclSuccess);
        if (result == ncclSuccess) check_cuda(api_.cuda, recorded, "cuEventRecord");
    } catch (const Error& error) {
        if (error.code() == ErrorCode::InvalidArgument) throw;
        return fail(work, error.code(), error.what());  // CUDA refused
    }
    if (!result || result == ncclSuccess) return;  // nothing: aborted, and the watchdog has the reason
    if (result == ncclInProgress) return fail(work, ErrorCode::Timeout, std::string(kStillConnecting));
    fail(work, *result == ncclRemoteError ? ErrorCode::PeerLost : ErrorCode::System,
         "NCCL could not launch it: " + communicator_->error_text(*result));
}

void NcclBackend::fail(const NcclWork& work, ErrorCode code, const std::string& text) {
    watchdog_->fail(
        {.code = code, .operation = work.text(), .cause = fmt::format("{}: {}", own_rank_, text), .names_group = true});
}

/// Makes the group's stream wait for the current work of the caller's stream: then the buffer is ready.
void NcclBackend::wait_for_caller(const NcclWork& work) {
    if (work.is_barrier_of_hosts()) return;
    record_on_callers_stream(api_.cuda, caller_done_, work, device_->index());
    check_cuda(api_.cuda, api_.cuda.stream_wait_event(device_->stream(), caller_done_, 0), "cuStreamWaitEvent");
}

ncclResult_t NcclBackend::start(const NcclTask& task, ncclComm_t comm) const {
    const NcclQueue queue{
        .nccl = api_.nccl, .stream = device_->stream(), .rank = rank_, .ranks = ranks_, .barrier_word = barrier_word_};
    const auto* const operation = std::get_if<Operation>(&task);
    return operation != nullptr ? detail::start(*operation, queue, comm)
                                : detail::start(std::get<TransferList>(task).transfers, queue, comm);
}

void NcclBackend::abort(std::string_view reason) {
    watchdog_->fail(
        {.code = ErrorCode::Aborted, .cause = fmt::format("{}: aborted: {}", own_rank_, reason), .names_group = true});
}

std::optional<Error> NcclBackend::failure() const {
    const auto failure = watchdog_->failure();
    if (!failure) return std::nullopt;
    return Error(failure->code, failure->cause, failure->culprits);
}

/// Knows only whether the process of a rank of this machine has ended.
RankState NcclBackend::state_of(int rank) const {
    const auto loss = peers_->loss_of(rank);
    if (!loss) return {};
    return {.gone = true, .text = loss->cause, .ended = true};
}

/// Throws Error{Unavailable} if spec.device is no device of this machine.
void require_device(const GroupSpec& spec, const CudaApi& cuda) {
    const auto count = count_devices(cuda);
    if (!count)
        throw Error(ErrorCode::Unavailable,
                    fmt::format("{}: no NCCL backend: {}", own_rank_text(spec), count.error().message));
    if (spec.device >= *count) {
        throw Error(ErrorCode::Unavailable,
                    fmt::format("{}: there is no CUDA device {}, only 0 to {}. Start at most {} ranks per "
                                "node, or use Backend::Native",
                                own_rank_text(spec), spec.device, *count - 1, *count));
    }
}

}  // namespace

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits) {
    require_device(spec, api.cuda);
    return std::make_unique<NcclBackend>(spec, api, limits);
}

}  // namespace ddp::detail

// NcclBackend: connects one group on its CUDA device, and gives its operations to the DeviceQueue of that device. An
// operation is four steps on the group's stream: wait for the work on the caller's stream, mark the start, run, mark
// the end. NcclWork::wait makes the caller's stream wait for that end.

#include "worker_lib/src/nccl/backend.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "worker_lib/src/cuda/device_arena.hpp"
#include "worker_lib/src/nccl/arguments.hpp"
#include "worker_lib/src/nccl/device_queue.hpp"
#include "worker_lib/src/nccl/peers.hpp"
#include "worker_lib/src/nccl/unique_id.hpp"

namespace ddp::detail {
namespace {

/// Owns the group in the queue, and the device's arena. Any thread.
class NcclBackend final : public BackendImpl {
public:
    NcclBackend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits, ddprun::TimePoint deadline);
    ~NcclBackend() override;
    /// Runs a barrier: NCCL makes connections and buffers, and loads its kernels, in the first operation. Later that
    /// could wait for a kernel of another group which waits for this one.
    void warm_up(ddprun::TimePoint deadline);

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
    [[nodiscard]] GroupDevice* device() override { return device_.get(); }
    void before_abort(std::function<void()> note) override { queue_->before_abort(*group_, std::move(note)); }
    void capture_on(Stream stream) override;
    void share(const std::shared_ptr<CapturedGraph>& graph) override { group_->communicator->graphs().add(graph); }
    void abort(std::string_view reason) override;
    void fail(const Error& error) override { queue_->fail(*group_, ddp::detail::failure_of(error)); }
    void fail_with(std::function<std::optional<Error>()> other) override {
        queue_->fail_with(*group_, std::move(other));
    }
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const override {
        return WorkState::after_callbacks(this, std::move(end));
    }
    [[nodiscard]] bool is_in_callback() const override { return WorkState::is_in_callback(this); }
    [[nodiscard]] std::optional<Error> failure() const override;
    [[nodiscard]] std::string location_of(int rank) const override { return group_->peers.location_of(rank); }
    [[nodiscard]] int global_rank(int rank) const override { return group_->peers.global_rank(rank); }
    [[nodiscard]] RankState state_of(int rank) const override;

private:
    [[nodiscard]] std::shared_ptr<NcclWork> enqueue(NcclTask task);
    void run_callbacks(const EndedWork& ended);

    const GpuApi api_;
    const NcclLimits limits_;
    const std::shared_ptr<BackendHandle<BackendImpl>> handle_;
    std::shared_ptr<DeviceQueue> queue_;
    std::shared_ptr<GroupDevice> device_;
    std::shared_ptr<NcclGroup> group_;
    std::unique_ptr<DeviceArena> arena_;
    Stream captured_;  ///< of capture_on()
};

NcclBackend::NcclBackend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits, ddprun::TimePoint deadline)
    : api_(api),
      limits_(limits),
      handle_(std::make_shared<BackendHandle<BackendImpl>>(
          *this,
          Participant{spec.name, name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], own_address()),
                      this})) {
    UniqueIdExchange found = exchange_unique_ids(api_.nccl, spec, deadline);
    group_ = std::make_shared<NcclGroup>(own_rank_text(spec), Peers(spec, found.records), limits_);
    queue_ = DeviceQueue::of(api_.cuda, spec.device);
    group_->device = device_ = std::make_shared<GroupDevice>(api_.cuda, spec.device, StreamPriority::kHighest);
    group_->communicator =
        std::make_unique<Communicator>(api_, spec, device_, std::move(found.ids), group_->peers, deadline, limits_);
    arena_ = std::make_unique<DeviceArena>(device_);
    group_->target.emplace(NcclTarget{.nccl = api_.nccl,
                                      .stream = device_->stream(),
                                      .rank = spec.rank,
                                      .ranks = static_cast<int>(spec.members.size()),
                                      .barrier_word = arena_->allocate(sizeof(std::int32_t))});
    group_->drained = device_->acquire_event();
    group_->callbacks.emplace(
        device_, [this](const EndedWork& ended) { run_callbacks(ended); }, [this] { queue_->notice_idle_callbacks(); });
    queue_->add(group_);
}

NcclBackend::~NcclBackend() {
    handle_->shut();
    queue_->remove(*group_);  // fails the operations in flight, and aborts the communicator then
    group_->callbacks.reset();
    // An exception is to be seen at once: the peers, which may never come to the end of this group, do not get 5 s
    // then.
    if (!failure()) group_->communicator->finish(std::uncaught_exceptions() == 0);
}

void NcclBackend::warm_up(ddprun::TimePoint deadline) {
    Operation barrier;
    barrier.kind = OpKind::kBarrier;
    barrier.deadline = deadline;
    barrier.label = "start";
    try {
        enqueue(std::move(barrier))->WorkState::wait();
        queue_->hand_out(*group_);
    } catch (const Error& error) {
        throw Error(error.code(), fmt::format("NCCL could not start: {}", error.what()), error.culprits());
    }
}

/// Gives the operation to the queue. Throws Error{InvalidArgument} for arguments that are found wrong before; the group
/// stays usable. Any later error fails the group and its operations, also one that NCCL finds in the arguments: a
/// non-blocking communicator keeps it and refuses all later calls.
std::shared_ptr<NcclWork> NcclBackend::enqueue(NcclTask task) {
    const Stream stream = std::visit([](const auto& one) { return one.stream; }, task);
    const bool captured = captured_.handle != nullptr && stream.handle == captured_.handle;
    auto work = std::make_shared<NcclWork>(std::move(task), device_, handle_, limits_.longest_abort(), captured);
    if (!failure()) {
        try {
            const DeviceScope scope(*device_);
            if (const auto wrong = argument_complaint(api_.cuda, *work, device_->index()); !wrong.empty())
                refuse(*work, wrong);
            work->record_caller();
        } catch (const Error& error) {
            if (error.code() == ErrorCode::InvalidArgument) throw;
            queue_->fail(*group_, {.code = error.code(),  // CUDA refused
                                   .operation = work->text(),
                                   .cause = fmt::format("{}: {}", group_->own_rank, error.what()),
                                   .names_group = true});
        }
    }
    queue_->submit(*group_, work);
    if (captured) work->await_launch();  // calls that add to one graph must not be made at the same time
    return work;
}

void NcclBackend::capture_on(Stream stream) {
    if (stream.handle == nullptr) {
        queue_->end_capture(*group_);
    } else if (!queue_->begin_capture(*group_)) {
        throw Error(
            ErrorCode::InvalidArgument,
            fmt::format("{}: another reducer of CUDA device {} has a captured step. Graphs of two communicators "
                        "that one process launches have been seen to block each other: capture the steps of "
                        "one reducer only, or destroy the other CapturedStep first",
                        group_->own_rank, device_->index()));
    }
    captured_ = stream;
}

/// Runs on the callback thread. An exception of a callback aborts the group, unless it has failed already.
void NcclBackend::run_callbacks(const EndedWork& ended) {
    ended.work->run(ended.callbacks, [&](std::string_view thrown) {
        if (failure()) return;
        ended.work->note_abort(thrown);
        abort(thrown);
    });
}

void NcclBackend::abort(std::string_view reason) {
    queue_->fail(*group_, {.code = ErrorCode::Aborted,
                           .cause = fmt::format("{}: aborted: {}", group_->own_rank, reason),
                           .names_group = true});
}

std::optional<Error> NcclBackend::failure() const {
    const auto failure = queue_->failure_of(*group_);
    if (!failure) return std::nullopt;
    const std::string begin = failure->operation.empty() ? "" : failure->operation + ": ";
    return Error(failure->code, with_next_step(*failure, begin + failure->cause), failure->culprits);
}

/// Knows only whether the process of a rank of this machine has ended.
RankState NcclBackend::state_of(int rank) const {
    const auto loss = group_->peers.loss_of(rank);
    if (!loss) return {};
    return {.gone = true, .text = loss->cause, .ended = true};
}

}  // namespace

std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec, const GpuApi& api, const NcclLimits& limits) {
    const ddprun::TimePoint deadline = ddprun::Clock::now() + spec.init_timeout;
    auto backend = std::make_unique<NcclBackend>(spec, api, limits, deadline);
    backend->warm_up(deadline);
    return backend;
}

}  // namespace ddp::detail

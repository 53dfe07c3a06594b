#include "tests/fake_gpu/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "tests/fake_gpu/nccl/launch_order.hpp"
#include "tests/fake_gpu/stream_call.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::fake_nccl {
namespace {

using namespace std::chrono_literals;
using fake::Fault;

/// After an abort buffers hold unspecified values. As floats these are NaN.
constexpr int kGarbage = 0xff;

void fill_with_garbage(const std::vector<Call>& calls, int rank, int ranks) {
    for (const Call& call : calls) {
        for (const Range& range : memory_of(call, rank, ranks))
            if (range.written) std::memset(const_cast<void*>(range.begin), kGarbage, range.bytes);
    }
}

}  // namespace

Communicator::Communicator(Meeting meeting, int rank, int ranks, int device, bool blocking)
    : meeting_(std::move(meeting)),
      rank_(rank),
      ranks_(ranks),
      device_(device),
      blocking_(blocking),
      text_(fmt::format("rank {} of communicator {}", rank, meeting_.name.substr(0, 8))) {}

/// Connects to the other ranks: here, or on a thread of its own.
ncclResult_t Communicator::init() {
    LaunchOrder::of_process().add(meeting_.name, device_);
    if (blocking_) {
        connect();
        return connect_result();
    }
    detail::start_signal_masked_thread("fake-nccl-init", [this] { connect(); }).detach();
    return ncclInProgress;
}

ncclResult_t Communicator::init_never() {
    if (!blocking_) return ncclInProgress;
    await_abort();
    return ncclInternalError;
}

void Communicator::connect() {
    std::unique_ptr<ProcessGroup> group;
    ncclResult_t result = ncclSuccess;
    try {
        group = meet(meeting_, rank_, ranks_, aborted_);
    } catch (const Error& error) {
        result = refuse(error.code() == ErrorCode::PeerLost ? ncclRemoteError : ncclSystemError,
                        fmt::format("{}: init: {}", text_, error.what()));
    }
    const ddprun::Lock lock(mutex_);
    if (state_ != State::kConnecting) return;  // aborted meanwhile
    group_ = std::move(group);
    error_ = result;
    state_ = State::kReady;
}

ncclResult_t Communicator::connect_result() {
    const ddprun::Lock lock(mutex_);
    return error_;
}

ncclResult_t Communicator::async_error() {
    std::optional<Pending> ready;
    {
        const ddprun::Lock lock(mutex_);
        if (state_ == State::kEnded) return misuse(text_ + ": ncclCommGetAsyncError after its end");
        if (state_ == State::kConnecting || state_ == State::kFinalizing) return ncclInProgress;
        if (error_ != ncclSuccess) return error_;
        if (const auto met = device_error_.load(std::memory_order_relaxed); met != ncclSuccess)
            return static_cast<ncclResult_t>(met);
        if (!pending_) return ncclSuccess;
        if (!pending_->ready_at || ddprun::Clock::now() < *pending_->ready_at) return ncclInProgress;
        ready = std::exchange(pending_, std::nullopt);
    }
    return keep(put_on_stream(std::move(*ready)));
}

/// Returns an error, which a non-blocking communicator keeps: all later calls return it, too.
ncclResult_t Communicator::keep(ncclResult_t error) {
    const ddprun::Lock lock(mutex_);
    if (!blocking_ && error_ == ncclSuccess) error_ = error;
    return error;
}

/// Returns ncclSuccess if the communicator takes operations.
ncclResult_t Communicator::usable(std::string_view function) {
    const ddprun::Lock lock(mutex_);
    switch (state_) {
        case State::kConnecting: return misuse(fmt::format("{}: {} while its init is in progress", text_, function));
        case State::kFinalizing:
        case State::kFinalized: return misuse(fmt::format("{}: {} after ncclCommFinalize", text_, function));
        case State::kEnded: return misuse(fmt::format("{}: {} after its end", text_, function));
        case State::kReady: break;
    }
    if (pending_) return misuse(fmt::format("{}: {} while a call on it is in progress", text_, function));
    return error_;
}

ncclResult_t Communicator::check(const Call& call) {
    const char* const name = name_of(call.kind);
    if (const ncclResult_t result = usable(name); result != ncclSuccess) return result;
    const auto fault = faults().next(name);
    if (fault) fake::perform(*fault);
    if (fault && fault->kind == Fault::Kind::Error)
        return keep(refuse(static_cast<ncclResult_t>(fault->error), fmt::format("{}: {}: a fault", text_, name)));
    if (const std::string wrong = complaint(call, ranks_); !wrong.empty())
        return keep(refuse(ncclInvalidArgument, fmt::format("{}: {}", text_, wrong)));
    for (const Range& range : memory_of(call, rank_, ranks_)) {
        const std::string wrong = memory_complaint(range, device_);
        if (!wrong.empty()) return keep(misuse(fmt::format("{}: {}: {}", text_, name, wrong)));
    }
    return ncclSuccess;
}

ncclResult_t Communicator::launch(std::vector<Call> calls, CUstream stream) {
    if (const int home = ::ddp_fake_cuda_stream_device(stream); home != device_)
        return keep(misuse(fmt::format("{}: a stream of device {}, not {}", text_, home, device_)));
    const auto fault = faults().next("launch");
    const bool never = fault && fault->kind == Fault::Kind::Never;
    if (fault) fake::perform(*fault);
    Pending pending;
    if (::ddp_fake_cuda_is_captured(stream) == 0) {
        pending.task = make_task(std::move(calls));
    } else {
        pending.captured = std::move(calls);
    }
    {
        const ddprun::Lock lock(mutex_);
        pending.stream = stream;
        pending.tasks_before = ::ddp_fake_cuda_tasks(stream);
        if (!never) pending.ready_at = ddprun::Clock::now();
        if (fault && fault->kind == Fault::Kind::Late) *pending.ready_at += fault->duration;
        if (!blocking_) {
            pending_ = std::move(pending);
            return ncclInProgress;
        }
    }
    while (!pending.ready_at || ddprun::Clock::now() < *pending.ready_at) {
        if (aborted()) return ncclInternalError;
        std::this_thread::sleep_for(1ms);
    }
    return put_on_stream(std::move(pending));
}

/// Makes the task of one launch, whose turn is next.
std::unique_ptr<Communicator::Task> Communicator::make_task(std::vector<Call> calls) {
    LaunchOrder::of_process().launch(meeting_.name, device_);
    const ddprun::Lock lock(mutex_);
    return std::unique_ptr<Task>(new Task{*this, *group_, std::move(calls), ++launches_, faults().next("kernel")});
}

ncclResult_t Communicator::put_on_stream(Pending pending) {
    const std::vector<Call>& calls = pending.task != nullptr ? pending.task->calls : pending.captured;
    if (::ddp_fake_cuda_tasks(pending.stream) != pending.tasks_before) {
        return misuse(fmt::format("{}: work was put on the stream while the launch of {} there was in progress", text_,
                                  name_of(calls.front().kind)));
    }
    std::vector<const void*> memory;
    for (const Call& call : calls) {
        for (const Range& range : memory_of(call, rank_, ranks_))
            if (range.bytes > 0) memory.push_back(range.begin);
    }
    if (pending.task == nullptr) {
        const int captured = put_into_graph(std::move(pending.captured), pending.stream, memory);
        if (captured == CUDA_SUCCESS) return ncclSuccess;
        return refuse(ncclUnhandledCudaError, fmt::format("{}: the capture takes no kernel ({})", text_, captured));
    }
    Task* const task = pending.task.release();
    tasks_.fetch_add(1);
    const int enqueued =
        ::ddp_fake_cuda_call_with(pending.stream, &Communicator::run_task, task, memory.data(), memory.size());
    if (enqueued == CUDA_SUCCESS) return ncclSuccess;
    const std::unique_ptr<Task> unused(task);
    tasks_.fetch_sub(1);
    end_turn(task->number);
    return refuse(ncclUnhandledCudaError, fmt::format("{}: the stream takes no kernel ({})", text_, enqueued));
}

/// The operations of one launch that are part of a graph. Each replay is a launch.
struct Communicator::InGraph {
    InGraph(Communicator& its_communicator, std::vector<Call> its_calls)
        : communicator(its_communicator), calls(std::move(its_calls)) {
        communicator.graph_calls_.fetch_add(1);
    }
    ~InGraph() { communicator.graph_calls_.fetch_sub(1); }
    InGraph(const InGraph&) = delete;
    InGraph& operator=(const InGraph&) = delete;

    Communicator& communicator;
    const std::vector<Call> calls;
};

int Communicator::put_into_graph(std::vector<Call> calls, CUstream stream, const std::vector<const void*>& memory) {
    const auto make = [](void* argument) -> void* {
        const auto& [communicator, launched] = *static_cast<const InGraph*>(argument);
        communicator.tasks_.fetch_add(1);
        return communicator.make_task(launched).release();
    };
    const auto release = [](void* argument) { delete static_cast<InGraph*>(argument); };
    return ::ddp_fake_cuda_capture_call(stream, make, &Communicator::run_task, release,
                                        new InGraph(*this, std::move(calls)), memory.data(), memory.size());
}

void Communicator::run_task(void* argument) {
    const std::unique_ptr<Task> task(static_cast<Task*>(argument));
    task->communicator.run(*task);
}

/// Runs on the thread of a stream.
void Communicator::run(Task& task) {
    begun_.fetch_add(1);  // before it looks at aborted_: abort() waits for it, or it sees the abort
    if (await_turn(task.number)) {
        take_part(task);
        if (aborted()) fill_with_garbage(task.calls, rank_, ranks_);
        end_turn(task.number);
    }
    ended_.fetch_add(1, std::memory_order_release);
}

void Communicator::take_part(Task& task) {
    if (task.fault && task.fault->kind == Fault::Kind::Late) std::this_thread::sleep_for(task.fault->duration);
    if (task.fault) fake::perform(*task.fault);
    if (task.fault && task.fault->kind == Fault::Kind::Error)
        device_error_.store(task.fault->error, std::memory_order_relaxed);
    if (task.fault && (task.fault->kind == Fault::Kind::Never || task.fault->kind == Fault::Kind::Error))
        return await_abort();
    try {
        execute(task.group, task.calls);
    } catch (const Error& error) {
        if (error.code() == ErrorCode::InvalidArgument) misuse(fmt::format("{}: {}", text_, error.what()));
        await_abort();
    }
}

void Communicator::await_abort() const {
    while (!aborted()) std::this_thread::sleep_for(1ms);
}

/// Returns false when the communicator has been aborted.
bool Communicator::await_turn(std::uint64_t number) {
    const ddprun::Lock lock(turn_mutex_);
    while (turn_ != number && !aborted()) (void)turn_changed_.wait_for(turn_mutex_, 1ms);
    return !aborted();
}

void Communicator::end_turn(std::uint64_t number) {
    {
        const ddprun::Lock lock(turn_mutex_);
        turn_ = std::max(turn_, number + 1);
    }
    turn_changed_.notify_all();
}

ncclResult_t Communicator::finalize() {
    if (const ncclResult_t result = usable("ncclCommFinalize"); result != ncclSuccess) return result;
    const auto fault = faults().next("ncclCommFinalize");
    if (fault) fake::perform(*fault);
    const bool never = fault && fault->kind == Fault::Kind::Never;
    std::uint64_t number = 0;
    {
        const ddprun::Lock lock(mutex_);
        state_ = State::kFinalizing;
        number = ++launches_;
    }
    if (never) return ncclInProgress;
    tasks_.fetch_add(1);
    begun_.fetch_add(1);
    if (blocking_) {
        flush(number);
        return ncclSuccess;
    }
    detail::start_signal_masked_thread("fake-nccl-final", [this, number] { flush(number); }).detach();
    return ncclInProgress;
}

/// Waits for the operations that have been launched, and for all peers to do the same.
void Communicator::flush(std::uint64_t number) {
    while (graph_calls_.load() > 0 && !aborted()) std::this_thread::sleep_for(100us);  // as NCCL does
    if (await_turn(number)) {
        try {
            compare_orders();
            const ddprun::Lock lock(mutex_);
            if (state_ == State::kFinalizing) state_ = State::kFinalized;
        } catch (const Error&) {  // a peer is lost, or aborts: NCCL waits for it
            await_abort();
        }
        end_turn(number);
    }
    ended_.fetch_add(1, std::memory_order_release);
}

/// Exchanges the orders of launches with all ranks, and compares them.
void Communicator::compare_orders() {
    ProcessGroup* group = nullptr;
    {
        const ddprun::Lock lock(mutex_);
        group = group_.get();
    }
    const std::string own = LaunchOrder::of_process().report(meeting_.name, device_);
    const std::uint64_t bytes = own.size();
    std::vector<std::uint64_t> counts(static_cast<std::size_t>(ranks_));
    group->all_gather(ConstBuffer(bytes), counts).wait();
    const std::vector<std::size_t> sizes(counts.begin(), counts.end());
    std::string all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), ' ');
    group
        ->all_gather_v(ConstBuffer(own.data(), own.size(), DType::U8), Buffer(all.data(), all.size(), DType::U8), sizes)
        .wait();
    std::size_t begin = 0;
    for (int other = 0; other < ranks_; ++other) {
        const std::size_t size = sizes[static_cast<std::size_t>(other)];
        const std::string name = different_order(own, all.substr(begin, size));
        begin += size;
        if (name.empty()) continue;
        misuse(
            fmt::format("{}: ranks {} and {} have launched operations of it and of communicator {} in different "
                        "orders on their devices",
                        text_, rank_, other, name.substr(0, 8)));
        return;
    }
}

ncclResult_t Communicator::destroy() {
    {
        const ddprun::Lock lock(mutex_);
        if (state_ == State::kEnded) return misuse(text_ + ": ncclCommDestroy after its end");
        // NCCL would finalize it itself, and block; the backend never lets it.
        if (state_ != State::kFinalized) return misuse(text_ + ": ncclCommDestroy before ncclCommFinalize has ended");
    }
    LaunchOrder::of_process().remove(meeting_.name, device_);
    const ddprun::Lock lock(mutex_);
    state_ = State::kEnded;
    group_.reset();
    return ncclSuccess;
}

ncclResult_t Communicator::abort() {
    const auto fault = faults().next("ncclCommAbort");
    if (fault) fake::perform(*fault);
    ProcessGroup* group = nullptr;
    {
        const ddprun::Lock lock(mutex_);
        if (state_ == State::kEnded) return misuse(text_ + ": ncclCommAbort after its end");
        state_ = State::kEnded;
        group = group_.get();
        pending_.reset();
    }
    LaunchOrder::of_process().remove(meeting_.name, device_);
    aborted_ = true;
    if (group != nullptr) group->abort("ncclCommAbort");
    turn_changed_.notify_all();
    if (fault && fault->kind == Fault::Kind::Wait) ::ddp_fake_cuda_wait_for_device(device_);
    while (ended_.load(std::memory_order_acquire) < begun_.load()) std::this_thread::sleep_for(100us);
    while (graph_calls_.load() > 0) std::this_thread::sleep_for(100us);  // for ever, if the program keeps a graph
    const ddprun::Lock lock(mutex_);
    if (ended_.load(std::memory_order_acquire) == tasks_.load()) group_.reset();  // else a task may still begin
    return ncclSuccess;
}

}  // namespace ddp::fake_nccl

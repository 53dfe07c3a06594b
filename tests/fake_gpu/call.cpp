#include "tests/fake_gpu/call.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/fake_gpu/captures.hpp"
#include "tests/fake_gpu/faults.hpp"

namespace ddp::fake {
namespace {

thread_local std::vector<Device*> contexts;  // the last one is the current one
std::atomic<pid_t> process_of_driver = 0;

// Refers to every function of the table: the linker reports one that the fake lacks.
#define DDP_ADDRESS(member, symbol, suffix) reinterpret_cast<void*>(&symbol##suffix),
[[gnu::used]] void* const all_functions[] = {DDP_CUDA_FUNCTIONS(DDP_ADDRESS)};
#undef DDP_ADDRESS

FaultPlan& faults() {
#define DDP_NAME(member, symbol, suffix) #symbol,
    static constexpr const char* kCalls[] = {DDP_CUDA_FUNCTIONS(DDP_NAME) "cuCtxGetCurrent", "cuCtxSetCurrent",
                                             "cuDevicePrimaryCtxGetState", "cuMemGetInfo", "cuStreamSynchronize"};
#undef DDP_NAME
    static auto& plan = *new FaultPlan(FaultPlan::from_environment("DDP_FAKE_CUDA_FAULTS", kCalls));
    return plan;
}

CUresult show_fault(const char* name) {
    using Kind = Fault::Kind;
    const auto fault = faults().next(name);
    if (!fault) return CUDA_SUCCESS;
    perform(*fault);
    if (fault->kind == Kind::Never) hold_up_next_task({.for_ever = true});
    if (fault->kind == Kind::Late) hold_up_next_task({.for_ever = false, .duration = fault->duration});
    if (fault->kind == Kind::Wait) {
        for (const auto& device : Device::all()) device->wait_for_all_work();
    }
    return fault->kind == Kind::Error ? CUresult{fault->error} : CUDA_SUCCESS;
}

}  // namespace

Device* current_device() { return contexts.empty() ? nullptr : contexts.back(); }

void push_context(Device* device) { contexts.push_back(device); }

Device* pop_context() {
    if (contexts.empty()) return nullptr;
    Device* const top = contexts.back();
    contexts.pop_back();
    return top;
}

Device* device_of(CUcontext context) {
    const auto found = std::ranges::find_if(
        Device::all(), [&](const auto& device) { return device.get() == reinterpret_cast<Device*>(context); });
    return found == Device::all().end() ? nullptr : found->get();
}

void start_driver() { process_of_driver.store(::getpid(), std::memory_order_relaxed); }

CUresult begin_call(const char* name, Needs needs) {
    if (Stream::runs_this_thread()) {
        report_misuse("a function that a stream runs makes a CUDA call");
        return kNotPermitted;
    }
    if (const CUresult error = show_fault(name); error != CUDA_SUCCESS) return error;
    if (needs == Needs::Nothing) return CUDA_SUCCESS;
    if (process_of_driver.load(std::memory_order_relaxed) != ::getpid()) return kNotInitialized;
    if (needs == Needs::Driver) return CUDA_SUCCESS;
    if (current_device() == nullptr) {
        report_misuse("a call on a thread without a context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return current_device()->active() ? CUDA_SUCCESS : kContextIsDestroyed;
}

void end_call() {
    const auto left = forget_hold_up();
    if (!left) return;  // the usual case: no fault, or one that a task has taken over
    if (left->for_ever) block_forever();
    std::this_thread::sleep_for(left->duration);
}

Target target_of(CUstream handle) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (number == 0 || number == 1) {  // CU_STREAM_LEGACY
        Device& device = *current_device();
        if (device.break_captures_of_blocking_streams()) return {.error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
        return {.stream = &device.default_stream()};
    }
    if (number == 2) return {.error = CUDA_ERROR_NOT_SUPPORTED};  // CU_STREAM_PER_THREAD
    auto* const stream = reinterpret_cast<Stream*>(handle);
    if (!stream->valid()) {
        report_misuse("the handle of a stream is invalid");
        return {.error = CUDA_ERROR_INVALID_HANDLE};
    }
    if (stream->destroyed.load(std::memory_order_relaxed)) {
        report_misuse("a stream is used after it was destroyed");
        return {.error = CUDA_ERROR_INVALID_HANDLE};
    }
    if (stream->capture.load(std::memory_order_relaxed) == Stream::Capture::Broken)
        return {.error = kCaptureInvalidated};
    return {.stream = stream};
}

CUresult enqueue(CUstream handle, std::function<void()> run, std::vector<Block*> memory) {
    const auto [stream, error] = target_of(handle);
    if (error != CUDA_SUCCESS) return error;
    for (Block* const block : memory) block->last_user.store(CallScope::current_name(), std::memory_order_relaxed);
    if (stream->capture.load(std::memory_order_relaxed) == Stream::Capture::Active) {
        // Runs once for each launch, so it must not change what it holds.
        const bool added = Captures::instance().add_task(
            *stream, [run = std::move(run)] { return run; }, std::move(memory));
        return added ? CUDA_SUCCESS : kCaptureInvalidated;
    }
    stream->device().push(*stream, std::move(run), std::move(memory));
    return CUDA_SUCCESS;
}

}  // namespace ddp::fake

#include "tests/fake_gpu/stream_call.hpp"

#include <functional>
#include <memory>
#include <span>

#include "tests/fake_gpu/call.hpp"
#include "tests/fake_gpu/captures.hpp"

using namespace ddp::fake;

namespace {

/// Makes a call that has no faults and no name in the driver.
template <typename Body>
int own_call(const char* name, const void* caller, Body&& body) {
    const CallScope scope(name, caller);
    if (current_device() != nullptr) return static_cast<int>(body());
    report_misuse("a call on a thread without a context");
    return CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

#define DDP_FAKE_VISIBLE __attribute__((visibility("default")))

extern "C" {

DDP_FAKE_VISIBLE int ddp_fake_cuda_call(CUstream_st* stream, void (*run)(void*), void* argument) {
    return own_call("ddp_fake_cuda_call", __builtin_return_address(0),
                    [&] { return enqueue(stream, [=] { run(argument); }); });
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_call_with(CUstream_st* stream, void (*run)(void*), void* argument,
                                             const void* const* memory, std::size_t count) {
    return own_call("ddp_fake_cuda_call_with", __builtin_return_address(0), [&] {
        return enqueue(
            stream, [=] { run(argument); }, MemoryTable::instance().named_in(std::as_bytes(std::span(memory, count))));
    });
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_capture_call(CUstream_st* stream, void* (*make)(void*), void (*run)(void*),
                                                void (*release)(void*), void* argument, const void* const* memory,
                                                std::size_t count) {
    return own_call("ddp_fake_cuda_capture_call", __builtin_return_address(0), [&] {
        const auto [target, error] = target_of(stream);
        if (target == nullptr) return error;
        const MakeTask make_task = [=]() -> std::function<void()> {
            return [run, made = make(argument)] { run(made); };
        };
        const bool added = Captures::instance().add_task(
            *target, make_task, MemoryTable::instance().named_in(std::as_bytes(std::span(memory, count))),
            std::shared_ptr<void>(argument, release));
        return added ? CUDA_SUCCESS : kCaptureInvalidated;
    });
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_stream_device(CUstream_st* stream) {
    if (stream == nullptr) return ddp_fake_cuda_current_device();
    const auto* const known = reinterpret_cast<const Stream*>(stream);
    return known->valid() ? known->device().ordinal() : -1;
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_current_device() {
    return current_device() == nullptr ? -1 : current_device()->ordinal();
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_is_captured(CUstream_st* stream) {
    if (stream == nullptr) return 0;
    return reinterpret_cast<const Stream*>(stream)->capture.load(std::memory_order_relaxed) != Stream::Capture::None;
}

DDP_FAKE_VISIBLE unsigned ddp_fake_cuda_tasks(CUstream_st* stream) {
    return stream == nullptr ? 0 : reinterpret_cast<const Stream*>(stream)->tasks();
}

DDP_FAKE_VISIBLE int ddp_fake_cuda_on_stream_thread() { return Stream::runs_this_thread(); }

DDP_FAKE_VISIBLE void ddp_fake_cuda_wait_for_device(int device) {
    Device::all().at(static_cast<std::size_t>(device))->wait_for_all_work();
}

DDP_FAKE_VISIBLE void ddp_fake_cuda_misuse(const char* what) { report_misuse(what); }

DDP_FAKE_VISIBLE unsigned ddp_fake_cuda_misuses() { return misuses(); }

}  // extern "C"

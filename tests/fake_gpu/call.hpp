#pragma once
// What every call of the fake driver does first and last: counts itself, shows its faults, checks that the driver was
// started and the thread has a context. And how a call finds its stream and enqueues work there.

#include <exception>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/fake_gpu/device.hpp"
#include "tests/fake_gpu/misuse.hpp"
#include "worker_lib/src/cuda/abi.hpp"

#define DDP_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

// Declares each function of the table with the table's signature, so that no definition can differ from it.
#define DDP_DECLARE(member, symbol, suffix) \
    DDP_FAKE_EXPORT std::remove_pointer_t<decltype(ddp::abi::CudaApi::member)> symbol##suffix;
DDP_CUDA_FUNCTIONS(DDP_DECLARE)
#undef DDP_DECLARE

namespace ddp::fake {

using namespace abi;

// Results that abi.hpp does not list.
inline constexpr CUresult kInvalidValue{1};
inline constexpr CUresult kNotInitialized{3};
inline constexpr CUresult kInvalidDevice{101};
inline constexpr CUresult kNotFound{500};
inline constexpr CUresult kContextIsDestroyed{709};
inline constexpr CUresult kAlreadyRegistered{712};
inline constexpr CUresult kNotRegistered{713};
inline constexpr CUresult kNotPermitted{800};
inline constexpr CUresult kCaptureInvalidated{901};
inline constexpr CUresult kCapturedEvent{907};

/// Returns the device of the calling thread's context, or nullptr.
Device* current_device();
void push_context(Device* device);
/// Returns the context that was on top of the thread's stack, or nullptr if it has none.
Device* pop_context();
/// Returns nullptr for what is not a device's context.
Device* device_of(CUcontext context);
inline CUcontext context_of(Device* device) { return reinterpret_cast<CUcontext>(device); }

/// Lets this process, but none that it forks, use the driver.
void start_driver();

enum class Needs { Nothing, Driver, Context };
CUresult begin_call(const char* name, Needs needs);
void end_call();

/// Makes a call of the driver, of which `body` is what it does on success. A caller is in the program, for reports.
template <typename Body>
CUresult call(const char* name, Needs needs, Body&& body, const void* caller = __builtin_return_address(0)) {
    const CallScope scope(name, caller);
    CUresult result = begin_call(name, needs);
    if (result != CUDA_SUCCESS) return result;
    try {
        result = std::forward<Body>(body)();
    } catch (const std::exception&) {  // no memory, no thread
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    end_call();
    return result;
}

/// The stream of a call that enqueues work, or the error that the call returns.
struct Target {
    Stream* stream = nullptr;
    CUresult error = CUDA_SUCCESS;
};
Target target_of(CUstream handle);
/// Enqueues a task. If the stream is captured, it becomes a part of the graph, and is not run now.
CUresult enqueue(CUstream handle, std::function<void()> run, std::vector<Block*> memory = {});

}  // namespace ddp::fake

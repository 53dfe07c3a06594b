#pragma once
// What tests/fake_gpu's libcuda.so.1 exports besides the driver's calls: for the fake of NCCL, which is linked against
// it (target fake_cuda), and for tests, which find these functions by dlsym.
//
// A stream is a thread. What a host thread did before a call happens before the task; nothing else is ordered by a
// call, so that ThreadSanitizer sees two streams that do not wait for each other. A task must keep it so: it may take
// no lock and touch no reference count that tasks of other streams touch, unless the device would order them there.

#include <cstddef>

struct CUstream_st;

extern "C" {

/// Enqueues `run(argument)` on a stream (null: the legacy default stream of the thread's context). It runs on the
/// stream's thread after all earlier work of the stream; later work waits until it returns. Returns a CUresult: 0, or
/// what cuLaunchKernel returns for such a stream (201: no context, 400: destroyed, 9xx: broken capture). If the
/// stream is captured the function is a part of the graph, and runs at each launch.
int ddp_fake_cuda_call(CUstream_st* stream, void (*run)(void*), void* argument);

/// The same for a task that uses memory: `memory` has `count` pointers into blocks of the driver (null and others are
/// ignored). A block that is freed before the task has ended is reported as misuse.
int ddp_fake_cuda_call_with(CUstream_st* stream, void (*run)(void*), void* argument, const void* const* memory,
                            std::size_t count);

/// The same on a captured stream, for a task of which each launch of the graph is another one: `make(argument)` returns
/// what `run` gets, on the thread that launches. `release(argument)` is called when the graph and its instances are
/// gone.
int ddp_fake_cuda_capture_call(CUstream_st* stream, void* (*make)(void*), void (*run)(void*), void (*release)(void*),
                               void* argument, const void* const* memory, std::size_t count);

/// Returns the ordinal of a stream's device (null: that of the thread's context), or -1.
int ddp_fake_cuda_stream_device(CUstream_st* stream);

/// Returns the ordinal of the device of the calling thread's context, or -1 without one.
int ddp_fake_cuda_current_device();

/// Returns whether a stream is captured: 1 or 0.
int ddp_fake_cuda_is_captured(CUstream_st* stream);

/// Returns how many tasks have been put on a stream so far, events and waits included.
unsigned ddp_fake_cuda_tasks(CUstream_st* stream);

/// Returns whether the calling thread runs a stream's tasks: 1 or 0. CUDA calls are forbidden there.
int ddp_fake_cuda_on_stream_thread();

/// Returns when all work that has been enqueued on the device so far has ended, as cuMemFree does. ThreadSanitizer does
/// not see this wait.
void ddp_fake_cuda_wait_for_device(int device);

/// Reports a misuse: one line on stderr with `what`, then abort(), or the count as DDP_FAKE_CUDA_MISUSE says.
void ddp_fake_cuda_misuse(const char* what);

/// Returns how many misuses were reported in this process.
unsigned ddp_fake_cuda_misuses();

}  // extern "C"

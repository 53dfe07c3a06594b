#pragma once
// Captures: which streams are captured, and which calls end a capture. What is enqueued on a captured stream is not
// run, and no graph is made of it: the fake knows the rules of a capture, not its result. Host threads only.

#include <thread>
#include <vector>

#include <mutex>

#include "tests/fake_gpu/stream.hpp"
#include "worker_lib/src/cuda/abi.hpp"

namespace ddp::fake {

class Captures {
public:
    static Captures& instance();

    /// Sets the mode in which the calling thread meets captures, and returns the one before.
    static abi::CUstreamCaptureMode exchange_mode(abi::CUstreamCaptureMode mode);

    void begin(Stream& stream, abi::CUstreamCaptureMode mode);
    /// Returns false if the capture was broken.
    bool end(Stream& stream);
    static void break_capture(Stream& stream);
    /// Breaks the captures that a call like cuMemAlloc or cuEventQuery ends when this thread makes it. Returns whether
    /// there was one.
    bool broken_by_unsafe_call();

private:
    struct Capture {
        Stream* stream;
        abi::CUstreamCaptureMode mode;
        std::thread::id thread;
    };
    std::mutex mutex_;
    std::vector<Capture> captures_;
};

}  // namespace ddp::fake

#pragma once
// Captures: which streams are captured, what is enqueued there, and which calls end a capture. Host threads only.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/fake_gpu/graph.hpp"
#include "tests/fake_gpu/stream.hpp"
#include "worker_lib/src/cuda/abi.hpp"

namespace ddp::fake {

/// A record of an event in a capture.
struct CapturedMark {
    std::uint64_t capture = 0;  ///< 0: none
    std::size_t mark = 0;
};

class Captures {
public:
    static Captures& instance();

    /// Sets the mode in which the calling thread meets captures, and returns the one before.
    static abi::CUstreamCaptureMode exchange_mode(abi::CUstreamCaptureMode mode);

    void begin(Stream& stream, abi::CUstreamCaptureMode mode);
    /// Ends the capture that has begun on the stream. Returns its graph; null: it was broken, or a stream has not
    /// joined it again (`unjoined`), or another thread has begun it.
    std::shared_ptr<const Graph> end(Stream& stream, abi::CUresult& error);
    void break_capture(Stream& stream);
    /// Breaks the captures that a call like cuMemAlloc or cuEventQuery ends when this thread makes it. Returns whether
    /// there was one.
    bool broken_by_unsafe_call();

    // On a stream that is captured. Return false if it is not any more.
    bool add_task(Stream& stream, MakeTask make, std::vector<Block*> memory, std::shared_ptr<void> owner = nullptr);
    std::optional<CapturedMark> add_mark(Stream& stream);
    /// Has a stream wait for a mark of its capture, or of one that it joins by that. Returns false if it cannot.
    bool add_wait(Stream& stream, CapturedMark mark);

private:
    struct Capture {
        std::uint64_t id;
        std::vector<Stream*> streams;  ///< the first one is that which has begun it
        abi::CUstreamCaptureMode mode;
        std::thread::id thread;
        std::shared_ptr<Graph> graph;

        [[nodiscard]] std::size_t number_of(Stream& stream) const;
    };
    Capture* capture_of(Stream& stream);
    static void break_capture(const Capture& capture);

    std::mutex mutex_;
    std::uint64_t last_id_ = 0;
    std::vector<Capture> captures_;
};

}  // namespace ddp::fake

#include "tests/fake_gpu/captures.hpp"

#include <utility>

namespace ddp::fake {
namespace {

thread_local abi::CUstreamCaptureMode mode_of_thread = abi::CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

Captures& Captures::instance() {
    static auto& captures = *new Captures;
    return captures;
}

abi::CUstreamCaptureMode Captures::exchange_mode(abi::CUstreamCaptureMode mode) {
    return std::exchange(mode_of_thread, mode);
}

void Captures::begin(Stream& stream, abi::CUstreamCaptureMode mode) {
    const std::lock_guard lock(mutex_);
    captures_.push_back({&stream, mode, std::this_thread::get_id()});
    stream.capture.store(Stream::Capture::Active, std::memory_order_relaxed);
}

bool Captures::end(Stream& stream) {
    const std::lock_guard lock(mutex_);
    std::erase_if(captures_, [&](const Capture& capture) { return capture.stream == &stream; });
    return stream.capture.exchange(Stream::Capture::None, std::memory_order_relaxed) == Stream::Capture::Active;
}

void Captures::break_capture(Stream& stream) {
    stream.capture.store(Stream::Capture::Broken, std::memory_order_relaxed);
}

bool Captures::broken_by_unsafe_call() {
    if (mode_of_thread == abi::CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    bool broken = false;
    const std::lock_guard lock(mutex_);
    for (const Capture& capture : captures_) {
        if (capture.mode == abi::CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        const bool own = capture.thread == std::this_thread::get_id();
        const bool concerns_all =
            capture.mode == abi::CU_STREAM_CAPTURE_MODE_GLOBAL && mode_of_thread == abi::CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !concerns_all) continue;
        break_capture(*capture.stream);
        broken = true;
    }
    return broken;
}

}  // namespace ddp::fake

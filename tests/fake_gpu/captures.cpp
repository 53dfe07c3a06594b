#include "tests/fake_gpu/captures.hpp"

#include <algorithm>
#include <utility>

namespace ddp::fake {
namespace {

constexpr abi::CUresult kInvalidated{901};
constexpr abi::CUresult kUnjoined{904};
constexpr abi::CUresult kWrongThread{908};
constexpr abi::CUresult kNoCapture{1};

thread_local abi::CUstreamCaptureMode mode_of_thread = abi::CU_STREAM_CAPTURE_MODE_GLOBAL;

bool is_active(const Stream& stream) {
    return stream.capture.load(std::memory_order_relaxed) == Stream::Capture::Active;
}

}  // namespace

Captures& Captures::instance() {
    static auto& captures = *new Captures;
    return captures;
}

abi::CUstreamCaptureMode Captures::exchange_mode(abi::CUstreamCaptureMode mode) {
    return std::exchange(mode_of_thread, mode);
}

std::size_t Captures::Capture::number_of(Stream& stream) const {
    return static_cast<std::size_t>(std::ranges::find(streams, &stream) - streams.begin());
}

Captures::Capture* Captures::capture_of(Stream& stream) {
    const auto found = std::ranges::find_if(
        captures_, [&](const Capture& capture) { return capture.number_of(stream) < capture.streams.size(); });
    return found == captures_.end() ? nullptr : &*found;
}

void Captures::begin(Stream& stream, abi::CUstreamCaptureMode mode) {
    const std::lock_guard lock(mutex_);
    captures_.push_back(
        {++last_id_, {&stream}, mode, std::this_thread::get_id(), std::make_shared<Graph>(stream.device())});
    stream.capture.store(Stream::Capture::Active, std::memory_order_relaxed);
}

std::shared_ptr<const Graph> Captures::end(Stream& stream, abi::CUresult& error) {
    const std::lock_guard lock(mutex_);
    Capture* const found = capture_of(stream);
    error = kNoCapture;
    if (found == nullptr || found->streams.front() != &stream) return nullptr;
    error = kWrongThread;
    if (found->mode != abi::CU_STREAM_CAPTURE_MODE_RELAXED && found->thread != std::this_thread::get_id())
        return nullptr;
    const Capture ended = std::move(*found);
    captures_.erase(captures_.begin() + (found - captures_.data()));
    error = is_active(stream) ? abi::CUDA_SUCCESS : kInvalidated;
    for (Stream* const one : ended.streams) one->capture.store(Stream::Capture::None, std::memory_order_relaxed);
    if (error == abi::CUDA_SUCCESS && !ended.graph->is_joined()) error = kUnjoined;
    return error == abi::CUDA_SUCCESS ? ended.graph : nullptr;
}

void Captures::break_capture(const Capture& capture) {
    for (Stream* const stream : capture.streams)
        stream->capture.store(Stream::Capture::Broken, std::memory_order_relaxed);
}

void Captures::break_capture(Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (const Capture* const capture = capture_of(stream)) break_capture(*capture);
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
        break_capture(capture);
        broken = true;
    }
    return broken;
}

bool Captures::add_task(Stream& stream, MakeTask make, std::vector<Block*> memory, std::shared_ptr<void> owner) {
    const std::lock_guard lock(mutex_);
    const Capture* const capture = capture_of(stream);
    if (capture == nullptr || !is_active(stream)) return false;
    capture->graph->add_task(capture->number_of(stream), std::move(make), std::move(memory));
    if (owner != nullptr) capture->graph->keep(std::move(owner));
    return true;
}

std::optional<CapturedMark> Captures::add_mark(Stream& stream) {
    const std::lock_guard lock(mutex_);
    const Capture* const capture = capture_of(stream);
    if (capture == nullptr || !is_active(stream)) return std::nullopt;
    return CapturedMark{.capture = capture->id, .mark = capture->graph->add_mark(capture->number_of(stream))};
}

bool Captures::add_wait(Stream& stream, CapturedMark mark) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(captures_, mark.capture, &Capture::id);
    if (found == captures_.end()) return false;
    if (const Capture* const own = capture_of(stream); own != nullptr && own != &*found) return false;
    if (found->number_of(stream) == found->streams.size()) {
        found->streams.push_back(&stream);
        stream.capture.store(Stream::Capture::Active, std::memory_order_relaxed);
    }
    found->graph->add_wait(found->number_of(stream), mark.mark);
    return true;
}

}  // namespace ddp::fake

#include "tests/fake_gpu/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "tests/fake_gpu/faults.hpp"

namespace ddp::fake {
namespace {

thread_local std::optional<HeldUp> held_up;

/// Returns the numbers of the visible devices. As in CUDA the list ends before the first that does not exist.
std::vector<int> visible_numbers() {
    const char* const count_text = std::getenv("DDP_FAKE_CUDA_DEVICES");
    const int count = count_text == nullptr ? 8 : std::atoi(count_text);
    std::vector<int> numbers;
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) {
        for (int i = 0; i < count; ++i) numbers.push_back(i);
        return numbers;
    }
    std::istringstream list(visible);
    for (std::string item; std::getline(list, item, ',');) {
        char* end = nullptr;
        const long number = std::strtol(item.c_str(), &end, 10);
        if (item.empty() || *end != '\0' || number < 0 || number >= count) break;
        numbers.push_back(static_cast<int>(number));
    }
    return numbers;
}

}  // namespace

void hold_up_next_task(HeldUp how) { held_up = how; }
std::optional<HeldUp> forget_hold_up() { return std::exchange(held_up, std::nullopt); }

const std::vector<std::unique_ptr<Device>>& Device::all() {
    static const auto& devices = []() -> auto& {
        auto& made =
            *new std::vector<std::unique_ptr<Device>>;  // never destroyed: streams may run when the process ends
        for (const int number : visible_numbers())
            made.push_back(std::make_unique<Device>(static_cast<int>(made.size()), number));
        return made;
    }
    ();
    return devices;
}

void Device::retain() {
    const std::lock_guard lock(mutex_);
    ++holders_;
}

bool Device::release() {
    const std::lock_guard lock(mutex_);
    if (holders_ == 0) return false;
    if (--holders_ > 0) return true;
    for (Stream* const stream : std::exchange(streams_, {})) destroy(*stream);
    if (default_stream_ != nullptr) destroy(*std::exchange(default_stream_, nullptr));
    last_default_task_ = {};
    MemoryTable::instance().forget(ordinal_);
    return true;
}

bool Device::active() const {
    const std::lock_guard lock(mutex_);
    return holders_ > 0;
}

Stream& Device::default_stream() {
    const std::lock_guard lock(mutex_);
    return default_stream_locked();
}

Stream& Device::default_stream_locked() {
    if (default_stream_ == nullptr) default_stream_ = new Stream(*this, true);
    return *default_stream_;
}

Stream& Device::create_stream(bool blocking) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(new Stream(*this, blocking));
    return *streams_.back();
}

void Device::destroy_stream(Stream& stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, &stream);
    destroy(stream);
}

void Device::destroy(Stream& stream) {
    stream.destroyed.store(true, std::memory_order_relaxed);
    std::erase_if(ended_, [](const Ended& ended) { return ended.completion.completed_unseen(); });
    ended_.push_back({stream.mark(), stream.blocking()});
    stream.close();
    destroyed_.push_back(&stream);
}

bool Device::break_captures_of_blocking_streams() {
    bool broken = false;
    const std::lock_guard lock(mutex_);
    for (Stream* const stream : streams_) {
        if (!stream->blocking() || stream->capture.load(std::memory_order_relaxed) == Stream::Capture::None) continue;
        stream->capture.store(Stream::Capture::Broken, std::memory_order_relaxed);
        broken = true;
    }
    return broken;
}

void Device::push(Stream& stream, std::function<void()> run, std::vector<Block*> memory) {
    if (const auto how = forget_hold_up()) {
        stream.push([how = *how] {
            if (how.for_ever) block_forever();
            std::this_thread::sleep_for(how.duration);
        });
    }
    // Not even the lock of the device for streams that are free of the default stream: it would order host threads.
    if (!stream.blocking()) return stream.push(std::move(run), std::move(memory));
    const std::lock_guard lock(mutex_);
    if (&stream != default_stream_) {
        if (std::exchange(stream.default_tasks_seen, default_tasks_) != default_tasks_)
            stream.wait_for(last_default_task_);
        return stream.push(std::move(run), std::move(memory));
    }
    for (Stream* const other : streams_) {
        if (other->blocking()) stream.wait_for(other->mark());
    }
    for (const Ended& ended : ended_) {
        if (ended.blocking) stream.wait_for(ended.completion);
    }
    stream.push(std::move(run), std::move(memory));
    last_default_task_ = stream.mark();
    ++default_tasks_;
}

Completion Device::record(Stream& stream) {
    Completion end = Completion::pending();
    push(stream, [end] { end.complete(); });
    return end;
}

void Device::wait_for_all_work() {
    std::vector<Completion> ends;
    {
        const std::lock_guard lock(mutex_);
        for (Stream* const stream : streams_) ends.push_back(stream->mark());
        for (const Ended& ended : ended_) ends.push_back(ended.completion);
        if (default_stream_ != nullptr) ends.push_back(default_stream_->mark());
    }
    for (const Completion& end : ends) end.wait_unseen();
}

}  // namespace ddp::fake

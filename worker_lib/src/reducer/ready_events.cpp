#include "worker_lib/src/reducer/ready_events.hpp"

#include <algorithm>

#include "worker_lib/src/cuda/call_checks.hpp"

namespace ddp::detail {

void ReadyEvents::begin(std::size_t buckets) {
    forget();  // an earlier backward may have ended by an error
    recorded_.assign(buckets, {});
    sources_.clear();  // handles of streams may be used again for others
}

void ReadyEvents::mark(std::size_t bucket, CUstream stream) {
    auto source = std::ranges::find(sources_, stream, &Source::stream);
    if (source == sources_.end()) source = sources_.insert(source, {.stream = stream, .open = std::nullopt});
    if (source->open && source->open != bucket) record(*source);
    source->open = bucket;
}

std::string ReadyEvents::capture_complaint(CUstream good) const {
    for (const Source& source : sources_) {
        if (!source.open || source.stream == good) continue;
        const std::string wrong = detail::capture_complaint(device_->cuda(), source.stream);
        if (!wrong.empty()) return "a gradient of this backward waits for its bucket: " + wrong;
    }
    return {};
}

void ReadyEvents::wait(std::size_t bucket, CUstream follower) {
    for (Source& source : sources_) {
        if (source.open == bucket) record(source);
    }
    for (CUevent event : recorded_[bucket])
        check_cuda(device_->cuda(), device_->cuda().stream_wait_event(follower, event, 0), "cuStreamWaitEvent");
    for (CUevent event : recorded_[bucket]) device_->release(event);  // a wait is for the record before it
    recorded_[bucket].clear();
}

void ReadyEvents::record(Source& source) {
    CUevent event = device_->acquire_event();
    recorded_[*source.open].push_back(event);
    source.open.reset();
    check_cuda(device_->cuda(), device_->cuda().event_record(event, source.stream), "cuEventRecord");
}

void ReadyEvents::forget() {
    for (const auto& events : recorded_) {
        for (CUevent event : events) device_->release(event);
    }
    recorded_.clear();
}

}  // namespace ddp::detail

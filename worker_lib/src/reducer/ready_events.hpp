#pragma once
// ReadyEvents: makes a bucket's exchange wait until the caller's streams have computed its gradients. It records one
// event per bucket and stream: when the stream goes on to another bucket, or when the bucket is exchanged. Marks of one
// stream are in order, so that its last one is enough. The reducer's mutex guards it. Every call needs a thread on
// which the device is current.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/src/cuda/group_device.hpp"

namespace ddp::detail {

class ReadyEvents {
public:
    explicit ReadyEvents(std::shared_ptr<GroupDevice> device) : device_(std::move(device)) {}
    ~ReadyEvents() { forget(); }
    ReadyEvents(const ReadyEvents&) = delete;
    ReadyEvents& operator=(const ReadyEvents&) = delete;

    /// Begins a backward over `buckets`, in which nothing is marked.
    void begin(std::size_t buckets);
    /// Notes that `stream`, as far as it is enqueued now, computes a gradient of the bucket. Throws Error{System}.
    void mark(std::size_t bucket, CUstream stream);
    /// Returns why a stream other than `good`, with marks that no event covers yet, cannot be used during a capture;
    /// empty: all can.
    [[nodiscard]] std::string capture_complaint(CUstream good) const;
    /// Makes `follower` wait for all marks of the bucket. Throws Error{System}.
    void wait(std::size_t bucket, CUstream follower);

private:
    /// A stream of the caller, and the bucket with marks of it that no event covers yet.
    struct Source {
        CUstream stream = nullptr;
        std::optional<std::size_t> open;
    };
    void record(Source& source);
    void forget();

    const std::shared_ptr<GroupDevice> device_;
    std::vector<Source> sources_;
    std::vector<std::vector<CUevent>> recorded_;  ///< by bucket, until its wait()
};

}  // namespace ddp::detail

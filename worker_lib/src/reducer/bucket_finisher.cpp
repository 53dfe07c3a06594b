#include "worker_lib/src/reducer/bucket_finisher.hpp"

#include <utility>

#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

BucketFinisher::BucketFinisher(std::function<void(std::size_t)> finish) : finish_(std::move(finish)) {
    thread_ = start_signal_masked_thread("ddp-buckets", [this] { run(); });
}

BucketFinisher::~BucketFinisher() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BucketFinisher::add() {
    {
        const std::lock_guard lock(mutex_);
        ++added_;
    }
    changed_.notify_all();
}

void BucketFinisher::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_ == added_; });
    added_ = finished_ = 0;
}

void BucketFinisher::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || finished_ < added_; });
        if (stopping_) return;
        const std::size_t bucket = finished_;
        lock.unlock();
        finish_(bucket);
        lock.lock();
        ++finished_;
        changed_.notify_all();
    }
}

}  // namespace ddp::detail

#include "worker_lib/src/reducer/bucket_finisher.hpp"

#include <utility>

#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

BucketFinisher::BucketFinisher(std::function<void(std::size_t)> finish) : finish_(std::move(finish)) {
    thread_ = start_signal_masked_thread("ddp-buckets", [this] { run(); });
}

BucketFinisher::~BucketFinisher() {
    {
        const ddprun::Lock lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BucketFinisher::add() {
    {
        const ddprun::Lock lock(mutex_);
        ++added_;
    }
    changed_.notify_all();
}

void BucketFinisher::wait() {
    const ddprun::Lock lock(mutex_);
    while (finished_ != added_) changed_.wait(mutex_);
    added_ = finished_ = 0;
}

void BucketFinisher::run() {
    const ddprun::Lock lock(mutex_);
    for (;;) {
        while (!stopping_ && finished_ >= added_) changed_.wait(mutex_);
        if (stopping_) return;
        const std::size_t bucket = finished_;
        mutex_.unlock();
        finish_(bucket);
        mutex_.lock();
        ++finished_;
        changed_.notify_all();
    }
}

}  // namespace ddp::detail

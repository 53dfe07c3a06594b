#pragma once
// BucketFinisher: owns the thread that finishes buckets (waits for the exchange, calls the hook's complete() and the
// user's callback) while backward goes on, one by one in launch order. The reducer calls add() under its mutex, wait()
// on its owner's thread.

#include <cstddef>
#include <functional>
#include <thread>

#include "common/mutex.hpp"

namespace ddp::detail {

class BucketFinisher {
public:
    /// `finish(k)` finishes the k-th bucket of a backward; it may not throw.
    explicit BucketFinisher(std::function<void(std::size_t)> finish);
    /// Waits for the running call of `finish`. The exchange that it waits for must be about to end.
    ~BucketFinisher();

    /// Adds the next bucket of this backward, which has been launched.
    void add() EXCLUDES(mutex_);
    /// Waits until all added buckets are finished. The next backward begins at bucket 0 again.
    void wait() EXCLUDES(mutex_);

private:
    void run() EXCLUDES(mutex_);

    const std::function<void(std::size_t)> finish_;
    ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    std::size_t added_ GUARDED_BY(mutex_) = 0;
    std::size_t finished_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

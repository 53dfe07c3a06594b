#pragma once
// BucketFinisher: runs what comes after a bucket's exchange (waiting for it, the hook, the user's callback) on a thread
// of its own, bucket by bucket in the order of add(), while backward goes on.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

namespace ddp::detail {

class BucketFinisher {
public:
    /// `finish(k)`, which may not throw, for the k-th bucket of a backward.
    explicit BucketFinisher(std::function<void(std::size_t)> finish);
    /// Waits for the call that is under way; what it waits for must be ending.
    ~BucketFinisher();

    /// The next bucket of this backward has been launched.
    void add();
    /// Returns when all that were added have been finished, and begins anew at 0.
    void wait();

private:
    void run();

    const std::function<void(std::size_t)> finish_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t added_ = 0;
    std::size_t finished_ = 0;
    bool stopping_ = false;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

#pragma once
// LaunchOrder: the order in which this process has launched operations of different communicators on each device. NCCL
// requires one order on all ranks: kernels that wait for peers in another order can block each other. Only hashes are
// kept. Any thread, but none of a stream.

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/mutex.hpp"

namespace ddp::fake_nccl {

class LaunchOrder {
public:
    [[nodiscard]] static LaunchOrder& of_process();

    void add(const std::string& communicator, int device) EXCLUDES(mutex_);
    void launch(const std::string& communicator, int device) EXCLUDES(mutex_);
    /// Forgets a communicator, which has ended: after a failure its ranks need not have launched the same.
    void remove(const std::string& communicator, int device) EXCLUDES(mutex_);
    /// Returns the order between the communicator and each other one of its device: "NAME HASH" for each.
    [[nodiscard]] std::string report(const std::string& communicator, int device) EXCLUDES(mutex_);

private:
    struct Communicator {
        std::uint64_t launches = 0;
        std::map<std::string, std::uint64_t> behind;  ///< hash of the others' launches before each launch of this one
    };
    ddprun::Mutex mutex_;
    std::map<int, std::map<std::string, Communicator>> devices_ GUARDED_BY(mutex_);
};

/// Compares the reports of two ranks. Returns the name of a communicator that both know and that they have launched in
/// different orders; empty: there is none.
[[nodiscard]] std::string different_order(const std::string& report, const std::string& other);

}  // namespace ddp::fake_nccl

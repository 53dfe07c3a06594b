#include "worker_lib/src/forks.hpp"

#include <pthread.h>

namespace ddp::detail {

std::atomic<std::uint32_t> forks{0};

void count_forks() {
    static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
}

}  // namespace ddp::detail

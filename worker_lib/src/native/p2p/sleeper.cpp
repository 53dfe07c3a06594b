#include "worker_lib/src/native/p2p/sleeper.hpp"

#include <poll.h>

#include <algorithm>
#include <array>

namespace ddp::detail::p2p {

Sleeper::Sleeper(PostPage& own, const Waiter& waiter) : own_(own), waiter_(waiter) {
    std::ranges::copy(doorbell_.name(), own_.doorbell.begin());
}

void Sleeper::ring(PostPage& neighbour) const {
    if (neighbour.asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
    doorbell_.ring(std::string_view(neighbour.doorbell.data(), neighbour.doorbell.size()));
}

bool Sleeper::sleep(int timeout_ms, int network_fd) const {
    std::array<pollfd, 2> waiting{
        {{.fd = doorbell_.fd(), .events = POLLIN, .revents = 0}, {.fd = network_fd, .events = POLLIN, .revents = 0}}};
    return ::poll(waiting.data(), waiting.size(), timeout_ms) > 0;  // a signal ends it early
}

void Sleeper::announce_sleep() {
    own_.asleep.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Sleeper::fence_wakers() {
    if (waiter_.waker_fence() == WakerFence::kItself) return false;
    unfenced_ = !waiter_.fence_wakers();
    return true;
}

}  // namespace ddp::detail::p2p

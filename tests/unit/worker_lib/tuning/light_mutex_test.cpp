#include "worker_lib/src/tuning/light_mutex.hpp"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using ddp::detail::LightMutex;

namespace {

/// Returns whether a thread of this process sleeps.
bool sleeps(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(file, text);
    const auto end_of_name = text.rfind(')');
    return end_of_name != std::string::npos && text.substr(end_of_name, 3) == ") S";
}

}  // namespace

TEST_CASE("a thread that sleeps until a light mutex is free is woken", "[native][unit]") {
    LightMutex mutex(GENERATE(true, false));  // whether waiters fence
    for (int round = 0; round < 20; ++round) {
        mutex.lock();
        std::atomic<pid_t> waiter{0};
        std::thread thread([&] {
            waiter = ::gettid();
            const std::lock_guard lock(mutex);
        });
        while (waiter == 0 || !sleeps(waiter)) std::this_thread::yield();
        mutex.unlock();
        thread.join();  // if no thread wakes it, for ever, until ctest ends it
    }
}

TEST_CASE("one thread at a time holds a light mutex", "[native][unit]") {
    LightMutex mutex(GENERATE(true, false));  // whether waiters fence
    constexpr int kThreads = 4;
    constexpr int kRounds = 20'000;
    int plain = 0;  // what two threads at once would lose counts of
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < kRounds; ++round) {
                const std::lock_guard lock(mutex);
                ++plain;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(plain == kThreads * kRounds);
}

TEST_CASE("the holder of a light mutex fails to lock it once more, and others succeed only after it",
          "[native][unit]") {
    LightMutex mutex(GENERATE(true, false));  // whether waiters fence
    const auto others_try = [&] {
        bool got = false;
        std::thread([&] {
            got = mutex.try_lock();
            if (got) mutex.unlock();
        }).join();
        return got;
    };
    REQUIRE(mutex.try_lock());
    CHECK_FALSE(mutex.try_lock());
    CHECK_FALSE(others_try());
    mutex.unlock();
    CHECK(others_try());
    CHECK(mutex.try_lock());
    mutex.unlock();
}

#include "worker_lib/src/native/shm/waiter.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/tuning/short_time_slices.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

using ddp::detail::Control;
using ddp::detail::Waiter;

namespace {

using ddp::detail::CoreSet;

CoreSet cores(std::initializer_list<int> numbers) {
    CoreSet set{};
    for (const int core : numbers) set[static_cast<std::size_t>(core / 64)] |= std::uint64_t{1} << (core % 64);
    return set;
}

std::vector<int> numbers_of(const CoreSet& cores) {
    std::vector<int> numbers;
    for (int core = 0; core < 1024; ++core) {
        if ((cores[static_cast<std::size_t>(core / 64)] >> (core % 64) & 1) != 0) numbers.push_back(core);
    }
    return numbers;
}

/// For the calling thread.
void bind_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)::sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

TEST_CASE("on a busy machine a waiter checks its deadlines in time", "[native][unit]") {
    std::atomic<bool> busy{true};
    std::vector<std::thread> others;
    for (int i = 0; i < 8 * ddp::detail::count(ddp::detail::usable_cores()); ++i)
        others.emplace_back([&] {
            while (busy) {
            }
        });

    const auto own = std::make_unique<Control>();
    const auto began = std::chrono::steady_clock::now();
    struct Checked {};
    CHECK_THROWS_AS(Waiter(*own, false, ddp::detail::WakerFence::kItself)
                        .wait([] { return false; }, [] { return true; }, [] { throw Checked(); }),
                    Checked);
    const auto waited = std::chrono::steady_clock::now() - began;
    busy = false;
    for (std::thread& other : others) other.join();
    CHECK(waited < std::chrono::seconds(1));  // 200 time slices of the others are several
}

TEST_CASE("a waiter that falls asleep during the change it waits for is woken, whichever side executes the fence",
          "[native][unit]") {
    using ddp::detail::WakerFence;
    const auto fence = GENERATE(WakerFence::kItself, WakerFence::kSleeper);
    if (fence == WakerFence::kSleeper && !ddp::detail::allow_remote_fences()) {
        WARN("this kernel has no membarrier: only one of the two ways is tested");
        return;
    }
    constexpr std::uint64_t kRounds = 40;
    const auto sleeper = std::make_unique<Control>();
    const auto waker = std::make_unique<Control>();
    const Waiter waiting(*sleeper, false, fence);
    const Waiter waking(*waker, false, fence);
    std::atomic<std::uint64_t> seen{0};
    std::atomic<std::uint64_t> told{0};
    std::thread peer([&] {
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
            while (seen.load() != round - 1) std::this_thread::yield();
            // About when it goes to sleep, earlier and later.
            while (round % 4 != 0 && sleeper->asleep.load() == 0) std::this_thread::yield();
            for (std::uint64_t i = 0; i < round % 8 * 20; ++i) Waiter::pause();
            waker->arrived.store(round, std::memory_order_release);
            waking.fence();
            Waiter::wake(*sleeper);
            told.store(round);
        }
    });
    int overlooked = 0;
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
        const auto before = sleeper->wake.load();
        // Once it has found nothing, the sleeper stays asleep until the waker has looked at it: one that saw the change
        // on its own, before that, would rightly not be woken.
        bool found_nothing = false;
        const auto ready = [&] {
            if (found_nothing) return told.load() == round || sleeper->wake.load() != before;
            const bool come = waker->arrived.load(std::memory_order_acquire) == round;
            found_nothing = !come && sleeper->asleep.load() != 0;
            return come;
        };
        waiting.wait(
            ready, [] { return true; }, [] {});
        while (told.load() != round) std::this_thread::yield();
        if (found_nothing && sleeper->wake.load() == before) ++overlooked;
        seen.store(round);
    }
    peer.join();
    CHECK(overlooked == 0);
}

TEST_CASE("where ranks share cores a waiter spins unless a peer that it waits for needs its core", "[native][unit]") {
    const bool needed = GENERATE(true, false);
    const auto own = std::make_unique<Control>();
    const Waiter waiter(*own, true, ddp::detail::WakerFence::kItself);
    int looks = 0;
    std::vector<int> asked;  // after so many looks
    waiter.wait(
        [&] {
            ++looks;
            return asked.size() == 2;
        },
        [&] {
            asked.push_back(looks);
            return needed;
        },
        [] {});
    CHECK(asked == std::vector<int>{0, needed ? 1 : 41});
}

TEST_CASE("where ranks share cores, each publishes its core", "[native][unit]") {
    using ddp::detail::LocalRank;
    using ddp::detail::Segment;
    const bool oversubscribed = GENERATE(true, false);
    const auto cores = static_cast<std::size_t>(ddp::detail::count(ddp::detail::usable_cores()));
    std::vector<LocalRank> ranks(oversubscribed ? cores + 1 : 1);
    for (LocalRank& rank : ranks) rank.segment = Segment::create();
    const auto segment = ranks[0].segment;
    const auto size = static_cast<int>(ranks.size());
    ddp::detail::Node node("world", size, std::move(ranks), 0);
    node.meetings.open({}, {});
    CHECK((segment->control().core.load() > 0) == oversubscribed);
}

TEST_CASE("the library's threads use short time slices where the kernel has them, the trainer's keep theirs",
          "[native][unit]") {
    const auto turn_of_this_thread = [] {
        std::array<std::uint64_t, 6> attributes{};  // struct sched_attr; the fourth word is the turn, in ns
        const bool known = ::syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0) == 0;
        return known ? attributes[3] : 0;
    };
    const auto usual = turn_of_this_thread();
    std::uint64_t turn = 0;
    ddp::detail::start_signal_masked_thread("ddp-test", [&] { turn = turn_of_this_thread(); }).join();
    if (usual == 0) WARN("SKIPPED: this kernel has one length of turns for all (Linux 6.12 has others)");
    using std::chrono::nanoseconds;
    CHECK(nanoseconds(turn) == (usual == 0 ? nanoseconds(0) : nanoseconds(ddp::detail::kShortTimeSlice)));
    CHECK(turn_of_this_thread() == usual);
}

TEST_CASE("ranks share cores if they cannot have one each, for any affinity", "[native][unit]") {
    using ddp::detail::share_cores;
    CHECK_FALSE(share_cores({cores({0, 1}), cores({0, 1})}));
    CHECK(share_cores({cores({0, 1}), cores({0, 1}), cores({0, 1})}));
    CHECK_FALSE(share_cores({cores({0}), cores({1}), cores({63}), cores({64}), cores({1023})}));
    CHECK(share_cores({cores({5}), cores({5})}));
    CHECK_FALSE(share_cores({cores({0, 1}), cores({0})}));
    CHECK_FALSE(share_cores({cores({0}), cores({0, 1})}));
    CHECK(share_cores({cores({0}), cores({0}), cores({1, 2, 3}), cores({1, 2, 3})}));
}

TEST_CASE("a node whose ranks are bound to a core each is not oversubscribed", "[native][unit]") {
    using ddp::detail::LocalRank;
    using ddp::detail::Segment;
    const std::vector<int> usable = numbers_of(ddp::detail::usable_cores());
    if (usable.size() < 2) {
        WARN("one core: no two ranks can have their own");
        return;
    }
    const bool same = GENERATE(false, true);
    auto oversubscribed = std::async(std::launch::async, [&] {
        std::vector<LocalRank> ranks(2);
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            bind_to(usable[same ? 0 : i]);
            ranks[i].segment = Segment::create();
        }
        return ddp::detail::Node("world", 2, std::move(ranks), 0).ranks.oversubscribed();
    });
    CHECK(oversubscribed.get() == same);
}

// The worker of bench_launch: notes when it started, and when it got SIGTERM and ended, in the file that it maps.
// usage: bench_launch_worker FILE COUNT
// Ends when COUNT workers have started, all at once; COUNT 0: when it gets SIGTERM.

#include <linux/futex.h>
#include <sys/syscall.h>

#include <climits>
#include <csignal>
#include <cstdlib>

#include "tests/bench/launch/records.hpp"

namespace {

using namespace bench_launch;

Record* own = nullptr;

void end_on_signal(int) {
    own->signalled = own->ended = now();
    ::_exit(0);
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    ::syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);  // the caller looks at the word again
}

/// Returns when `count` workers have started.
void meet(Records& records, std::uint32_t count) {
    for (std::uint32_t seen; (seen = records.arrived.load()) < count;) futex(records.arrived, FUTEX_WAIT, seen);
    futex(records.arrived, FUTEX_WAKE, INT_MAX);
}

}  // namespace

int main(int argc, char** argv) {
    const std::int64_t started = now();
    if (argc != 3) return 2;
    const int file = ::open(argv[1], O_RDWR);
    void* const memory = ::mmap(nullptr, sizeof(Records), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return 2;
    auto& records = *static_cast<Records*>(memory);
    const auto count = static_cast<std::uint32_t>(std::atoi(argv[2]));

    const std::uint32_t place = records.places.fetch_add(1);
    if (place >= kMaxRecords) return 2;
    own = &records.record[place];
    own->pid = ::getpid();
    own->started = started;
    if (count == 0) ::signal(SIGTERM, end_on_signal);
    records.arrived.fetch_add(1);
    if (count == 0) {
        for (;;) ::pause();
    }
    meet(records, count);
    own->ended = now();
    ::_exit(0);
}

#pragma once
// The file that the workers of bench_launch map and write their time stamps to; bench_launch.py reads it (records.py).

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace bench_launch {

constexpr int kMaxRecords = 4096;

/// One worker's time stamps, in nanoseconds of CLOCK_MONOTONIC; 0: not yet.
struct Record {
    std::int64_t pid;
    std::int64_t started;    ///< its first instruction
    std::int64_t signalled;  ///< SIGTERM arrived
    std::int64_t ended;      ///< its last instruction
};

/// The contents of the file. `arrived` is a futex.
struct Records {
    std::atomic<std::uint32_t> arrived;  ///< workers of all generations whose records are complete
    std::atomic<std::uint32_t> places;   ///< taken by workers that are about to arrive
    Record record[kMaxRecords];
};

inline std::int64_t now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace bench_launch

#pragma once
// FaultPlan: the faults that the fake libraries of tests/fake_gpu show, from an environment variable. Any thread.
//
//   DDP_FAKE_CUDA_FAULTS="rank 1: cuEventQuery 5 block; rank 0, 2: cuLaunchKernel 3+ error 700; all: cuMemFree 1 wait"
//
// Each entry has ranks (RANK of the process; "all": also a process without RANK), a call, which of this process's calls
// of that function it concerns (5: the fifth; 3+: the third and all later ones), and what happens:
//
//   block        the call never returns
//   slow 300ms   the call takes so much longer (ms or s)
//   error 700    the call does nothing and returns this number
//   wait         the call first waits for all work of the device
//   exit         the process dies in the call, by SIGKILL
//   never        the call returns, but the work that it enqueues never ends, nor what is behind it on the stream
//   late 300ms   the call returns, but the work that it enqueues takes so much longer

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fake {

struct Fault {
    enum class Kind { Block, Slow, Error, Wait, Exit, Never, Late };
    Kind kind = Kind::Block;
    unsigned error = 0;                    ///< of Error
    std::chrono::milliseconds duration{};  ///< of Slow and Late
};

class FaultPlan {
public:
    /// Reads `text` for a process of rank `rank`. `calls` are the functions that faults may name. Throws
    /// std::invalid_argument, which names the entry that is wrong.
    FaultPlan(std::string_view text, std::optional<int> rank, std::span<const char* const> calls);
    /// Reads the environment variable `variable` (unset: no faults) and RANK. Ends the process with a line on stderr
    /// when it is wrong: a test whose fault has a typing error must not pass.
    static FaultPlan from_environment(const char* variable, std::span<const char* const> calls);

    /// Counts a call and returns its fault, if it has one: the first in the text. What Block, Slow and Exit ask for is
    /// done by perform().
    [[nodiscard]] std::optional<Fault> next(std::string_view call);

private:
    struct Entry {
        unsigned first = 0;
        bool and_later = false;
        Fault fault;
    };
    struct Call {
        std::atomic<unsigned> count = 0;  // relaxed: a count must order no threads
        std::vector<Entry> entries;
    };
    void add(std::string_view entry, std::optional<int> rank);

    std::map<std::string, Call, std::less<>> calls_;  // the calls that may be named; constant but for the counts
};

/// Does what Block, Slow and Exit ask of the call. The other kinds are the caller's affair: nothing happens here.
void perform(const Fault& fault);

/// Never returns.
[[noreturn]] void block_forever();

}  // namespace ddp::fake

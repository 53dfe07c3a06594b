#pragma once
// One row of the table.

#include <cstddef>

#include "ddp/context.hpp"
#include "worker_lib/bench/collective.hpp"
#include "worker_lib/bench/options.hpp"

namespace ddp::bench {

/// Of the slowest rank, in microseconds: the same on all ranks. On device buffers this rank's own: nothing on the host
/// connects the ranks there.
struct Times {
    double mean = 0;
    double median = 0;
    double p99 = 0;
};

struct Measured {
    Times us;
    std::size_t wrong = 0;  ///< elements, of all ranks
    bool checked = false;
};

/// Memory for all calls: an input, and an output that in-place calls use alone.
class Memory {
public:
    /// `bytes` of the largest buffer. In the group's arena, or of this process's own if options.foreign.
    Memory(ProcessGroup& group, std::size_t bytes, bool foreign);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void* input = nullptr;
    void* output = nullptr;
    Device device = Device::Cpu;

private:
    bool owned_ = false;
};

/// Collective. Every rank makes the same call.
[[nodiscard]] Measured measure(ProcessGroup& group, const Call& call, const Memory& memory, const Options& options);

}  // namespace ddp::bench

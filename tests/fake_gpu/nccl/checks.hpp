#pragma once
// The checks of how a program uses NCCL, and the error that ncclGetLastError returns. A misuse is one that hangs or
// corrupts memory on a real device now and then, so that no test would find it: it ends the process with one line, or
// is only counted, as DDP_FAKE_CUDA_MISUSE says (stream_call.hpp).

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "tests/fake_gpu/faults.hpp"
#include "tests/fake_gpu/nccl/call.hpp"

namespace ddp::fake_nccl {

/// Reports a misuse. Returns ncclInvalidUsage, if it returns.
ncclResult_t misuse(const std::string& what);

/// Keeps the text for ncclGetLastError, and returns `result`.
ncclResult_t refuse(ncclResult_t result, std::string text);
/// Returns the last text, valid until this thread's next call.
[[nodiscard]] const char* last_error();

/// Returns why the device cannot use the memory; empty: it can.
[[nodiscard]] std::string memory_complaint(const Range& memory, int device);

/// Marks that a thread is inside a communicator. One at a time may be.
class Visit {
public:
    /// Reports a misuse if another thread is inside.
    Visit(std::atomic<pid_t>& inside, std::string_view communicator, std::string_view function);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

private:
    std::atomic<pid_t>& inside_;
    const pid_t before_;
};

/// Returns the faults of this process, from DDP_FAKE_NCCL_FAULTS. They concern the functions of nccl.h, and
///   launch   a launch of one or more operations. never: a non-blocking communicator stays in progress, and a call of a
///            blocking one waits until the communicator is aborted, as if peers did not connect
///   kernel   the work on the stream. never: it takes no part in its operation; late; exit: the process dies in it;
///            error: NCCL reports the error later, and the work ends only by an abort
[[nodiscard]] fake::FaultPlan& faults();

}  // namespace ddp::fake_nccl

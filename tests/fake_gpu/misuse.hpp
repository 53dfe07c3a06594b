#pragma once
// Reports calls that a program must not make, though a driver may let them pass. Any thread but those of streams.

#include <string>

namespace ddp::fake {

/// Marks what the calling thread is in, for reports. Scopes may nest: a library above the driver calls it.
class CallScope {
public:
    CallScope(const char* call, const void* caller);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;
    /// Returns the name of the call that this thread is in.
    static const char* current_name();

private:
    const CallScope* const outer_;
    const char* const call_;
    const void* const caller_;
    friend void report_misuse(const std::string& what);
};

/// Prints "fake CUDA: <what> (<call>, called from <program>+0x1234 by thread 7 of process 6, rank 2)" to stderr, and
/// aborts. With DDP_FAKE_CUDA_MISUSE=count it goes on, and only counts.
void report_misuse(const std::string& what);

/// Returns how many were reported.
unsigned misuses();

}  // namespace ddp::fake

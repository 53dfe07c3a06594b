#define CATCH_CONFIG_RUNNER
#include "tests/catch.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kFailed = 1;    // Catch's own code is the number of failures, which may be any
constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of every test

/// Catch2 2 cannot skip: a case says WARN("SKIPPED: why") and returns. Counts such cases.
class SkipCounter final : public Catch::TestEventListenerBase {
public:
    using TestEventListenerBase::TestEventListenerBase;
    static inline int cases = 0;
    static inline int skipped_cases = 0;

    void testCaseStarting(const Catch::TestCaseInfo&) override { skipped_ = false; }
    bool assertionEnded(const Catch::AssertionStats& stats) override {
        for (const Catch::MessageInfo& info : stats.infoMessages) {
            const bool warning = info.type == Catch::ResultWas::Warning;
            skipped_ = skipped_ || (warning && info.message.compare(0, 8, "SKIPPED:") == 0);
        }
        return false;
    }
    void testCaseEnded(const Catch::TestCaseStats&) override {
        ++cases;
        if (skipped_) ++skipped_cases;
    }

private:
    bool skipped_ = false;
};
CATCH_REGISTER_LISTENER(SkipCounter)

bool session_has_ended = false;
const pid_t own_pid = ::getpid();

/// A case that ends the test program in its middle would pass unseen with code 0:
/// a child that shares this process's memory and returns into the wrong one has done that.
void refuse_early_end() {
    if (session_has_ended || ::getpid() != own_pid) return;  // a process that a case has forked may end
    std::fputs("a test case ended its program in the middle\n", stderr);
    std::abort();
}
const int at_exit = std::atexit(refuse_early_end);

/// Ends this process, as _exit(2) does.
[[noreturn]] void end_process(int code) {
    refuse_early_end();
    for (;;) ::syscall(SYS_exit_group, code);
}

}  // namespace

// These take the place of libc's, which exit(3) does not call.
extern "C" void _exit(int code) { end_process(code); }
extern "C" void _Exit(int code) noexcept { end_process(code); }

/// ctest runs one case at a time. It is skipped only if nothing in it failed.
int main(int argc, char** argv) {
    const int failed = Catch::Session().run(argc, argv);
    session_has_ended = true;
    if (failed != 0) return kFailed;
    return SkipCounter::cases > 0 && SkipCounter::skipped_cases == SkipCounter::cases ? kSkipped : 0;
}

// Tests fork. What Catch has printed must be out by then, or the child would print it once more, into the test's pipe.
[[maybe_unused]] static const int lines_leave_at_once = std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);

// What ThreadSanitizer need not report in any test. An exception_ptr counts its owners inside libstdc++.so, which is
// not instrumented: when the last owner of an error is another thread than the one that read it, the sanitizer sees no
// order.
extern "C" {
const char* __tsan_default_suppressions();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
}

#define CATCH_CONFIG_MAIN
#include "tests/catch.hpp"

#include <cstdio>

// Tests fork. What Catch has printed must be out by then, or the child would print it once more, into the test's pipe.
[[maybe_unused]] static const int lines_leave_at_once = std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);

// What ThreadSanitizer need not report in any test. An exception_ptr counts its owners inside libstdc++.so, which is not
// instrumented: when the last owner of an error is another thread than the one that read it, the sanitizer sees no order.
extern "C" {
const char* __tsan_default_suppressions();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
}

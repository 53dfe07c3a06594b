// The worker of bench_logs.py: prints lines to stdout through stdio.
//   printer lines N full|line   N lines of 100 bytes; full: stdio's buffer for pipes, line: one write per line
//   printer clock N             N lines with the monotonic time in nanoseconds, one per millisecond

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

void print_lines(long count, bool by_line) {
    std::setvbuf(stdout, nullptr, by_line ? _IOLBF : _IOFBF, BUFSIZ);
    for (long i = 0; i < count; ++i) std::printf("%099ld\n", i);
}

void print_clock(long count) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    for (long i = 0; i < count; ++i) {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        std::printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(now).count()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const long count = std::atol(argv[2]);
    if (std::string(argv[1]) == "clock")
        print_clock(count);
    else
        print_lines(count, argc > 3 && std::string(argv[3]) == "line");
    return std::fflush(stdout) == 0 ? 0 : 1;
}

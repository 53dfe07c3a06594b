// The worker of the bench of faults: notes when it runs.
// usage: bench_launch_steps FILE INTERVAL_MS [PROGRAM ARGUMENT...]
// Adds a line "TIME GENERATION RANK HOST PID" to FILE when it starts and in each interval, TIME in seconds since the
// epoch. Ends with 0 when there is a file FILE.end. With a PROGRAM it executes that after the first line. The rank that
// STUBBORN names ignores SIGTERM.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

const char* variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "-";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const int file = ::open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    char host[64] = "";
    if (file < 0 || ::gethostname(host, sizeof host - 1) != 0) return 2;
    if (std::atoi(variable("STUBBORN")) == std::atoi(variable("RANK")) && std::getenv("STUBBORN"))
        std::signal(SIGTERM, SIG_IGN);
    const std::string end = std::string(argv[1]) + ".end";
    while (::access(end.c_str(), F_OK) != 0) {
        char line[192];
        timespec time{};
        ::clock_gettime(CLOCK_REALTIME, &time);  // the only clock that virtual hosts share
        const int size = std::snprintf(line, sizeof line, "%lld.%09ld %s %s %s %d\n",
                                       static_cast<long long>(time.tv_sec), time.tv_nsec, variable("DDPRUN_GENERATION"),
                                       variable("RANK"), host, static_cast<int>(::getpid()));
        if (::write(file, line, static_cast<std::size_t>(size)) != size) return 2;  // one write: lines do not mix
        if (argc > 3) {
            ::execvp(argv[3], argv + 3);
            return 127;
        }
        ::usleep(static_cast<useconds_t>(std::atoi(argv[2])) * 1000);
    }
}

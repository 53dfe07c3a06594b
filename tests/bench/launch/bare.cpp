// The least that starts and ends COUNT workers: a loop of vfork and exec, then a loop of wait.
// usage: bench_launch_bare COUNT PROGRAM ARGUMENT...

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace {

/// In a function of its own: the compiler warns of a loop's variables beside vfork().
bool start(char** command) {
    const pid_t pid = ::vfork();
    if (pid == 0) {
        ::execv(command[0], command);
        ::_exit(127);
    }
    return pid > 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    for (int left = std::atoi(argv[1]); left > 0; --left)
        if (!start(argv + 2)) return 1;
    while (::wait(nullptr) > 0) {
    }
}

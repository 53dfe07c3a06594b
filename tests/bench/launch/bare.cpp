// The least that starts and ends COUNT workers: a loop of vfork and exec, then a loop of wait.
// usage: bench_launch_bare COUNT PROGRAM ARGUMENT...

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    for (int left = std::atoi(argv[1]); left > 0; --left) {
        const pid_t pid = ::vfork();
        if (pid < 0) return 1;
        if (pid == 0) {
            ::execv(argv[2], argv + 2);
            ::_exit(127);
        }
    }
    while (::wait(nullptr) > 0) {
    }
}

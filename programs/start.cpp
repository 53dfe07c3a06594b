// ddprund and ddpctl, as their users find them: each executes the ddprun in its own folder, with its name (NAME) as the
// last component of argv[0]. Links would do the same, but a wheel has none. It uses C only, so that it loads quickly.

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "common/exit_codes.hpp"

int main(int argc, char** argv) {
    if (argc < 1) return ddprun::exit_code::kUsage;  // a caller of execve(2) has left out the name
    char folder[PATH_MAX] = {};
    if (::readlink("/proc/self/exe", folder, sizeof folder - 1) < 0) {
        std::fprintf(stderr, NAME ": cannot read /proc/self/exe: %s. Mount /proc.\n", std::strerror(errno));
        return ddprun::exit_code::kInfrastructure;
    }
    *std::strrchr(folder, '/') = '\0';
    char program[PATH_MAX + 8];
    char name[PATH_MAX + 8];
    std::snprintf(program, sizeof program, "%s/ddprun", folder);
    std::snprintf(name, sizeof name, "%s/" NAME, folder);
    argv[0] = name;
    ::execv(program, argv);
    const char* const why = std::strerror(errno);
    std::fprintf(stderr, NAME ": cannot execute %s: %s. Install ddprun again.\n", program, why);
    return ddprun::exit_code::kInfrastructure;
}

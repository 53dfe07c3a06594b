#include "train/process.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

extern "C" void openblas_set_num_threads(int threads);  // other CBLAS packages' cblas.h does not declare it

namespace train {

int default_threads(const ddp::Context& context) {
    if (const char* text = std::getenv("OMP_NUM_THREADS")) {
        if (const int threads = std::atoi(text); threads > 0) return threads;
    }
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;  // more than 1024 CPUs: pass --threads
    return std::max(1, CPU_COUNT(&allowed) / context.local_world_size());
}

void use_threads(int threads) { openblas_set_num_threads(threads); }

int print_result(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return EXIT_SUCCESS;
    fmt::print(stderr,
               "train: cannot write to stdout: {}. The result is lost. Redirect stdout to where there is room\n",
               std::strerror(errno));
    return EXIT_FAILURE;
}

}  // namespace train

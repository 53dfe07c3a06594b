#include "train/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

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

}  // namespace train

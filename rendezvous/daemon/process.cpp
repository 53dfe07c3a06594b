#include "rendezvous/daemon/process.hpp"

#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/system/signals.hpp"

namespace ddprun::daemon {

void prepare_process() {
    ignore_failed_writes();

    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        if (::setrlimit(RLIMIT_NOFILE, &files) != 0)
            spdlog::warn("cannot raise the limit of open files: {}", std::strerror(errno));
    }
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);        // lowering a limit is always allowed
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // known since Linux 3.5; nothing is executed here anyway
}

}  // namespace ddprun::daemon

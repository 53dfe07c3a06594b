#include "worker_lib/src/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace ddp::detail {

void occupy_closed_standard_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) == -1) static_cast<void>(::open("/dev/null", O_RDWR));  // takes the lowest free number
    }
}

}  // namespace ddp::detail

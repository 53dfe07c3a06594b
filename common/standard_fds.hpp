#pragma once
// For the first line of main(): a program that was started without stdin, stdout or stderr (`ddprun job >&-`) would hand
// their numbers to the next files and sockets that it opens, and then write its messages into them.

#include <fcntl.h>
#include <unistd.h>

namespace ddprun {

/// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. Allocates nothing.
inline void open_standard_fds() noexcept {
    int fd = 0;
    do fd = ::open("/dev/null", O_RDWR);  // the lowest number that is free
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace ddprun

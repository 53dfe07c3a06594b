#pragma once
// Opens missing standard descriptors. A program that was started without stdin, stdout or stderr (`ddprun job >&-`)
// would otherwise give their numbers to files and sockets that it opens, and write its messages into them.

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <initializer_list>

namespace ddprun {

/// Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Allocates nothing. Call it first in main().
/// mode   O_RDONLY: a write to stdout fails (EBADF), so that its loss is reported. O_RDWR: a write is dropped.
inline void open_standard_fds(int mode = O_RDONLY) noexcept {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", mode);  // gets the lowest free number, which is fd
    }
}

/// Returns whether `fd` is open for writing; false also after open_standard_fds() has opened it.
inline bool is_open_for_writing(int fd) noexcept {
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

/// Returns whether `fd` takes a line now: one that is not read would make its writer wait.
inline bool has_room(int fd) noexcept {
    pollfd room{fd, POLLOUT, 0};
    return ::poll(&room, 1, 0) == 1;
}
inline bool stderr_has_room() noexcept { return has_room(STDERR_FILENO); }

}  // namespace ddprun

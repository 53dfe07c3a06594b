#pragma once
// Reads small files of the kernel without allocation, for the guard and its keeper. Any thread.

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "common/system/unique_fd.hpp"

namespace ddprun::agent {

/// Reads the file `name` in `folder` into `text`, which ends with a zero byte; what exceeds `capacity` is cut. Returns
/// the number of bytes; -1 if the file cannot be read.
[[nodiscard]] inline ssize_t read_text_at(int folder, const char* name, char* text, std::size_t capacity) noexcept {
    text[0] = '\0';
    const UniqueFd file(::openat(folder, name, O_RDONLY | O_CLOEXEC));
    const ssize_t size = file ? ::read(file.get(), text, capacity - 1) : -1;
    if (size >= 0) text[size] = '\0';
    return size;
}

/// Returns the next decimal number of `text` at or after `at`; -1 if there is none. Moves `at` behind it.
[[nodiscard]] inline long next_number(const char* text, ssize_t size, ssize_t& at) noexcept {
    while (at < size && (text[at] < '0' || text[at] > '9')) ++at;
    if (at >= size) return -1;
    long number = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9'; ++at) number = number * 10 + (text[at] - '0');
    return number;
}

/// Reads up to `capacity` pids from the file `fd`, where the kernel puts a blank or a line end behind each, to `out`.
/// Returns how many. A last number without such an end is dropped: it may be the start of another pid.
[[nodiscard]] inline int read_pids(int fd, pid_t* out, int capacity) noexcept {
    char text[4096];
    ssize_t kept = 0;  // the start of a number that the last read cut
    int count = 0;
    for (ssize_t got;
         count < capacity && (got = ::read(fd, text + kept, sizeof text - static_cast<std::size_t>(kept))) > 0;) {
        const ssize_t size = kept + got;
        ssize_t end = size;
        while (end > 0 && text[end - 1] >= '0' && text[end - 1] <= '9') --end;
        ssize_t at = 0;
        for (long pid; count < capacity && (pid = next_number(text, end, at)) >= 0;) {
            if (pid > 0) out[count++] = static_cast<pid_t>(pid);  // 0: a process outside of this pid namespace
        }
        kept = size - end;
        std::memmove(text, text + end, static_cast<std::size_t>(kept));
    }
    return count;
}

}  // namespace ddprun::agent

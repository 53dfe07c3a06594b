#pragma once
// Line: a line for stderr, built without allocation, for the guard and its keeper. One thread.

#include <poll.h>
#include <unistd.h>

#include <cstddef>

namespace ddprun::agent {

/// Text that does not fit is cut.
struct Line {
    char text[512] = "";
    std::size_t size = 0;

    Line& add(const char* string) noexcept {
        while (*string != '\0' && size < sizeof text - 1) text[size++] = *string++;
        return *this;
    }
    Line& add(char character) noexcept {
        const char string[] = {character, '\0'};
        return add(string);
    }
    Line& add(long number) noexcept {
        char digits[24];
        int first = sizeof digits;
        digits[--first] = '\0';
        do digits[--first] = static_cast<char>('0' + number % 10);
        while ((number /= 10) > 0);
        return add(digits + first);
    }
    /// Gives up after a while if the reader of stderr takes nothing: the exit code must not wait for it.
    void print() noexcept {
        text[size++] = '\n';
        constexpr int kTimeoutMilliseconds = 5000;
        pollfd room{STDERR_FILENO, POLLOUT, 0};  // a pipe that has room takes a line of this size whole
        if (::poll(&room, 1, kTimeoutMilliseconds) != 1) return;
        // A failure to print cannot be printed.
        [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, size);
    }
};

}  // namespace ddprun::agent

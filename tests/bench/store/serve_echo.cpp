#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>

#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {

int listen_and_tell() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener, 65535) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        throw std::runtime_error("cannot listen on 127.0.0.1");
    }
    std::printf("%u\n", unsigned{ntohs(address.sin_port)});
    std::fflush(stdout);
    return listener;
}

void accept_into(int epoll, int listener) {
    const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0) return;
    const int one = 1;
    ::setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    epoll_event added{.events = EPOLLIN, .data = {.fd = accepted}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, accepted, &added);
}

void serve_echo() {
    const int listener = listen_and_tell();
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{.events = EPOLLIN, .data = {.fd = listener}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &interest);
    std::array<epoll_event, 256> events;
    static std::array<char, 64 * 1024> buffer;
    for (;;) {
        const int count = ::epoll_wait(epoll, events.data(), events.size(), -1);
        for (int i = 0; i < count; ++i) {
            const int fd = events[std::size_t(i)].data.fd;
            if (fd == listener) {
                accept_into(epoll, listener);
                continue;
            }
            const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
            // The sockets block on sending: the client always reads, so this waits for nothing but the kernel.
            if (n <= 0 || ::send(fd, buffer.data(), std::size_t(n), MSG_NOSIGNAL) != n) ::close(fd);
        }
    }
}

}  // namespace ddprun::bench

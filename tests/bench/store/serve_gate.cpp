#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <span>
#include <vector>

#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {
namespace {

class Gate {
public:
    void take(int fd, const GateMessage& message) {
        switch (message.code) {
            case GateCode::kAnswer:
                open_ = false;
                say(fd, 8);
                break;
            case GateCode::kWait:
                if (open_) say(fd, 1);
                if (!open_) waiting_.push_back(fd);
                break;
            case GateCode::kOpen: open(); break;
            case GateCode::kMeet:
                waiting_.push_back(fd);
                if (waiting_.size() == message.clients) open();
                open_ = false;
                break;
        }
    }

private:
    void open() {
        open_ = true;
        for (const int fd : waiting_) say(fd, 1);
        waiting_.clear();
    }
    /// The client always reads, so this waits for nothing but the kernel.
    static void say(int fd, std::size_t bytes) { (void)!::send(fd, "\0\0\0\0\0\0\0", bytes, MSG_NOSIGNAL); }

    bool open_ = false;
    std::vector<int> waiting_;
};

}  // namespace

void serve_gate() {
    const int listener = listen_and_tell();
    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{.events = EPOLLIN, .data = {.fd = listener}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &interest);
    std::array<epoll_event, 256> events;
    static std::array<GateMessage, 1024> messages;
    Gate gate;
    for (;;) {
        const int count = ::epoll_wait(epoll, events.data(), events.size(), -1);
        for (int i = 0; i < count; ++i) {
            const int fd = events[std::size_t(i)].data.fd;
            if (fd == listener) {
                accept_into(epoll, listener);
                continue;
            }
            // The loopback delivers a message of this size whole.
            const ssize_t n = ::recv(fd, messages.data(), sizeof(messages), 0);
            if (n <= 0) ::close(fd);
            for (const GateMessage& message : std::span(messages).first(n > 0 ? std::size_t(n) / kGateBytes : 0))
                gate.take(fd, message);
        }
    }
}

}  // namespace ddprun::bench

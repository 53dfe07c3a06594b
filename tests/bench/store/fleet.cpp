#include "tests/bench/store/fleet.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/bench/store/clock.hpp"

namespace ddprun::bench {
namespace {

constexpr std::size_t kReceiveBytes = 256 * 1024;
/// Requests up to here that await nothing are followed by the next one at once.
constexpr std::size_t kSmallBytes = 4096;
constexpr int kSilenceMs = 60'000;

[[noreturn]] void fail(std::string_view what) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

UniqueFd connect_client(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) fail("socket");
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    // Closing resets: thousands of connections leave no port in TIME_WAIT behind.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    return fd;
}

/// One round trip on each connection.
class HelloScript final : public Script {
public:
    HelloScript(const Protocol& protocol, std::size_t connections) : hello_(protocol.sync()), said_(connections) {}
    const Request* next(std::size_t connection) override {
        if (said_[connection]) return nullptr;
        said_[connection] = true;
        return &hello_;
    }

private:
    Request hello_;
    std::vector<bool> said_;
};

}  // namespace

Fleet::Fleet(const Protocol& protocol, std::uint16_t port, std::size_t connections, std::size_t send_bytes)
    : send_bytes_(send_bytes),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      connections_(connections),
      buffer_(kReceiveBytes) {
    const Request greeting{.bytes = protocol.greeting()};
    for (std::size_t i = 0; i < connections; ++i) {
        connections_[i].fd = connect_client(port);
        epoll_event interest{.events = EPOLLIN, .data = {.u64 = i}};
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connections_[i].fd.get(), &interest) != 0) fail("epoll_ctl");
        if (!greeting.bytes.empty()) post(i, greeting);
    }
    // How a server accepts is not what is measured: PyTorch 2.15's looks up each client's name at the DNS first.
    HelloScript hello(protocol, connections);
    run(hello);
}

void Fleet::post(std::size_t connection, const Request& request) {
    const ssize_t n =
        ::send(connections_[connection].fd.get(), request.bytes.data(), request.bytes.size(), MSG_NOSIGNAL);
    if (n != ssize_t(request.bytes.size())) fail("send");
    connections_[connection].scanner.expect(request);
}

void Fleet::run(Script& script) {
    script_ = &script;
    running_ = connections_.size();
    for (Connection& connection : connections_) connection.running = true, connection.exhausted = false;
    for (std::size_t i = 0; i < connections_.size(); ++i) begin_next(i);
    std::array<epoll_event, 256> events;
    while (running_ > 0) {
        const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), kSilenceMs);
        if (count == 0) throw std::runtime_error(fmt::format("no answer for {} s", kSilenceMs / 1000));
        for (int i = 0; i < count; ++i) handle(events[std::size_t(i)].data.u64, events[std::size_t(i)].events);
    }
}

void Fleet::handle(std::size_t index, std::uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_some(index);
    if ((events & EPOLLOUT) && send_some(index)) begin_next(index);
}

/// Starts requests until one has to be waited for.
void Fleet::begin_next(std::size_t index) {
    Connection& connection = connections_[index];
    while (connection.running && !connection.exhausted) {
        const Request* request = script_->next(index);
        if (request == nullptr) {
            connection.exhausted = true;
            break;
        }
        connection.sending = request;
        connection.sent_bytes = 0;
        connection.awaited = request->await && !request->replies.empty() ? request : nullptr;
        connection.started = now_ns();
        connection.scanner.expect(*request);
        if (!send_some(index) || connection.awaited) return;
        if (request->bytes.size() > kSmallBytes) {  // the others' turn
            want_write(index, true);
            return;
        }
    }
    if (connection.running && connection.scanner.complete()) {
        connection.running = false;
        --running_;
        want_write(index, false);
        script_->finished(index);
    }
}

/// True when the request is out and the next may follow it.
bool Fleet::send_some(std::size_t index) {
    Connection& connection = connections_[index];
    if (connection.sending == nullptr) return connection.awaited == nullptr;
    const std::string& bytes = connection.sending->bytes;
    const std::size_t size = std::min(bytes.size() - connection.sent_bytes, send_bytes_);
    const ssize_t n = ::send(connection.fd.get(), bytes.data() + connection.sent_bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) fail("send");
    if (n > 0) connection.sent_bytes += std::size_t(n);
    if (connection.sent_bytes < bytes.size()) {
        want_write(index, true);
        return false;
    }
    connection.sending = nullptr;
    if (connection.awaited) want_write(index, false);
    return connection.awaited == nullptr;
}

void Fleet::receive_some(std::size_t index) {
    Connection& connection = connections_[index];
    const ssize_t n = ::recv(connection.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("recv");
    if (n == 0) throw std::runtime_error("the server ended a connection");
    connection.scanner.feed({buffer_.data(), std::size_t(n)});
    if (!connection.scanner.complete() || connection.sending) return;
    if (connection.awaited) {
        const Request& request = *std::exchange(connection.awaited, nullptr);
        script_->answered(index, request, now_ns() - connection.started);
        begin_next(index);
    } else if (connection.exhausted) {
        begin_next(index);
    }
}

void Fleet::want_write(std::size_t index, bool wanted) {
    Connection& connection = connections_[index];
    if (connection.wants_write == wanted) return;
    connection.wants_write = wanted;
    epoll_event interest{.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u64 = index}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &interest);
}

}  // namespace ddprun::bench

#include "tests/e2e/proxy.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <vector>

namespace e2e {
namespace {

constexpr int kPollMs = 20;  // for the destructor and cut()

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

ddprun::UniqueFd tcp_socket() { return ddprun::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// Forwards the data that `from` has now; false at its end.
bool pass_on(int from, int to) {
    std::array<char, 16384> bytes{};
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return got > 0 && ::send(to, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
}

}  // namespace

Proxy::Proxy(std::uint16_t to_port) : to_port_(to_port), listener_(tcp_socket()) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), any, size) != 0 || ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), any, &size) != 0)
        throw std::runtime_error("the proxy has no port");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy() {
    ending_ = true;
    thread_.join();
}

std::size_t Proxy::cut() {
    const std::lock_guard lock(mutex_);
    const std::size_t count = connections_.size();
    connections_.clear();
    return count;
}

std::size_t Proxy::cut_end(End end, How how) {
    const std::lock_guard lock(mutex_);
    const std::size_t count = connections_.size();
    for (Connection& c : connections_) {
        ddprun::UniqueFd& ended = end == End::kClient ? c.near : c.far;
        const linger at_once{1, 0};  // then close() sends a reset
        if (how == How::kReset && ::setsockopt(ended.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) != 0)
            throw std::runtime_error("the proxy cannot reset a connection");
        ended.reset();
        silent_.push_back(std::move(end == End::kClient ? c.far : c.near));
    }
    connections_.clear();
    return count;
}

void Proxy::accept_one() {
    Connection connection{ddprun::UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), tcp_socket()};
    const sockaddr_in address = loopback(to_port_);
    if (::connect(connection.far.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        connections_.push_back(std::move(connection));  // else closed again, as no process listens there
}

void Proxy::run() {
    while (!ending_) {
        pollfd listening{listener_.get(), POLLIN, 0};
        std::vector<pollfd> sources;
        {
            const std::lock_guard lock(mutex_);
            for (const Connection& c : connections_) {
                sources.push_back({c.near.get(), POLLIN, 0});
                sources.push_back({c.far.get(), POLLIN, 0});
            }
        }
        sources.push_back(listening);
        ::poll(sources.data(), sources.size(), kPollMs);
        const std::lock_guard lock(mutex_);
        // Descriptors may have been closed meanwhile, so recv() decides and not the result of poll().
        std::erase_if(connections_, [](const Connection& c) {
            for (const auto& [from, to] :
                 {std::pair(c.near.get(), c.far.get()), std::pair(c.far.get(), c.near.get())}) {
                pollfd source{from, POLLIN, 0};
                if (::poll(&source, 1, 0) > 0 && !pass_on(from, to)) return true;
            }
            return false;
        });
        if (::poll(&listening, 1, 0) > 0) accept_one();
    }
}

}  // namespace e2e

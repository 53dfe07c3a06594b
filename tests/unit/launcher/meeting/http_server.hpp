#pragma once
// A server on a thread of its own that answers each connection with the text that a function returns for its request.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/endpoint.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"

namespace meeting_test {

/// Returns a complete answer with `body`.
inline std::string http_answer(const std::string& status, const std::string& body) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class HttpServer {
public:
    using Answer = std::function<std::string(const std::string& request)>;  ///< empty: closes without an answer

    explicit HttpServer(Answer answer) : answer_(std::move(answer)) {
        listener_ = ddprun::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof name;
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), size) == 0);
        REQUIRE(::listen(listener_.get(), 16) == 0);
        REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
        endpoint_ = {"127.0.0.1", ntohs(name.sin_port)};
        thread_ = std::jthread([this] { serve(); });
    }
    ~HttpServer() { ::shutdown(listener_.get(), SHUT_RDWR); }
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    [[nodiscard]] const ddprun::Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] std::vector<std::string> requests() {
        const std::lock_guard lock(mutex_);
        return requests_;
    }

private:
    void serve() {
        for (;;) {
            const ddprun::UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!peer) return;
            const std::string request = read_request(peer.get());
            {
                const std::lock_guard lock(mutex_);
                requests_.push_back(request);
            }
            const std::string text = answer_(request);
            (void)!::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL);
        }
    }
    static std::string read_request(int fd) {
        std::string text;
        char bytes[4096];
        for (;;) {
            if (text.starts_with('\x16')) return text;  // TLS, which is not answered as such
            const auto head = text.find("\r\n\r\n");
            const auto length = text.find("Content-Length: ");
            const std::size_t body = length < head ? std::stoul(text.substr(length + 16)) : 0;
            if (head != std::string::npos && text.size() >= head + 4 + body) return text;
            const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
            if (got <= 0) return text;
            text.append(bytes, static_cast<std::size_t>(got));
        }
    }

    Answer answer_;
    ddprun::UniqueFd listener_;
    ddprun::Endpoint endpoint_;
    std::mutex mutex_;
    std::vector<std::string> requests_;
    std::jthread thread_;  // last: it ends before the members that it uses
};

}  // namespace meeting_test

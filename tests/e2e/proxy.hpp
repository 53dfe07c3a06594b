#pragma once
// Proxy: a port of this machine through which programs reach another one, until the test cuts what goes through it.

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "common/unique_fd.hpp"

namespace e2e {

class Proxy {
public:
    /// Forwards to `to_port` of 127.0.0.1, from a free port.
    explicit Proxy(std::uint16_t to_port);
    ~Proxy();
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Ends every connection, at both ends; new ones are welcome. Returns how many there were.
    std::size_t cut();

private:
    struct Connection {
        ddprun::UniqueFd near, far;
    };
    void run();
    void accept_one();

    std::uint16_t to_port_;
    std::uint16_t port_ = 0;
    ddprun::UniqueFd listener_;
    std::mutex mutex_;
    std::list<Connection> connections_;
    std::atomic<bool> ending_ = false;
    std::thread thread_;  ///< last: it uses all the others
};

}  // namespace e2e

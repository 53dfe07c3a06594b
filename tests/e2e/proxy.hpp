#pragma once
// Proxy: a TCP forwarder between two ports of this machine, whose connections the test can cut.

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "common/system/unique_fd.hpp"

namespace e2e {

/// Owns the listener, its connections and a thread that forwards their data. cut() may be called from the test's
/// thread.
class Proxy {
public:
    /// Listens on a free port and forwards to `to_port` of 127.0.0.1.
    explicit Proxy(std::uint16_t to_port);
    ~Proxy();
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Closes every connection at both ends, and goes on to accept new ones. Returns how many there were.
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

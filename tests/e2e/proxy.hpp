#pragma once
// Proxy: a TCP forwarder between two ports of this machine, whose connections the test can cut, at both ends or at one.

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "common/system/unique_fd.hpp"

namespace e2e {

/// Owns the listener, its connections and a thread that forwards their data. cut() and cut_end() may be called from the
/// test's thread.
class Proxy {
public:
    enum class End { kClient, kServer };
    enum class How { kClose, kReset };

    /// Listens on a free port and forwards to `to_port` of 127.0.0.1.
    explicit Proxy(std::uint16_t to_port);
    ~Proxy();
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Closes every connection at both ends, and goes on to accept new ones. Returns how many there were.
    std::size_t cut();
    /// Ends every connection at one end alone, and goes on to accept new ones. The other end stays open and silent
    /// until this object is destroyed, as after a fault of the network that only one side has noticed. Returns how many
    /// connections there were.
    std::size_t cut_end(End end, How how);

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
    std::list<ddprun::UniqueFd> silent_;  ///< the open ends of connections that were cut at the other one
    std::atomic<bool> ending_ = false;
    std::thread thread_;  ///< last: it uses all the others
};

}  // namespace e2e

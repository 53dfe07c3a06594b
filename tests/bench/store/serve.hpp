#pragma once
// The benchmark's floors, each run in a process of its own. They print their port, and serve until killed.

namespace ddprun::bench {

/// A bare level-triggered epoll loop on one thread that sends back what it reads.
[[noreturn]] void serve_echo();
/// Swallows and sends large values: the loopback's plain bandwidth.
[[noreturn]] void serve_plain();

/// Listens on a free port of 127.0.0.1 and prints it.
[[nodiscard]] int listen_and_tell();

}  // namespace ddprun::bench

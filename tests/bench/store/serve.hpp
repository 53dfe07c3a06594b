#pragma once
// The benchmark's own servers, each run in a process of its own. They print their port, and serve until killed.

namespace ddprun::bench {

/// A bare level-triggered epoll loop on one thread that sends back what it reads.
[[noreturn]] void serve_echo();
/// Swallows and sends large values: the loopback's plain bandwidth.
[[noreturn]] void serve_plain();
/// Our store.
[[noreturn]] void serve_store();

/// Listens on a free port of 127.0.0.1 and prints it.
[[nodiscard]] int listen_and_tell();
void tell_port(unsigned port);

}  // namespace ddprun::bench

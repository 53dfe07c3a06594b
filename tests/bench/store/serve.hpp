#pragma once
// The benchmark's floors, each run in a process of its own. They print their port, and serve until killed.

#include <cstddef>
#include <cstdint>

namespace ddprun::bench {

/// A bare level-triggered epoll loop on one thread that sends back what it reads.
[[noreturn]] void serve_echo();
/// Receives into and sends from one buffer of so many bytes: the loopback's plain bandwidth.
[[noreturn]] void serve_plain(std::size_t buffer_bytes);
/// As bare as echo, for clients that meet: holds back the answers that depend on another client. The layout of its
/// messages is in floor_protocols.cpp.
[[noreturn]] void serve_gate();

/// Listens on a free port of 127.0.0.1 and prints it.
[[nodiscard]] int listen_and_tell();
/// Accepts a connection and adds it to the set.
void accept_into(int epoll, int listener);

/// What the gate is told: one of these and a number, in kGateBytes (a TCPStore request about as long).
enum class GateCode : char {
    kAnswer = 'A',  ///< 8 bytes at once; from now on the gate is closed
    kWait = 'W',    ///< one byte as soon as the gate is open
    kOpen = 'O',    ///< no answer
    kMeet = 'M',    ///< one byte when so many have sent this
};
inline constexpr std::size_t kGateBytes = 40;
struct GateMessage {
    GateCode code;
    std::uint32_t clients;
    char padding[kGateBytes - 2 * sizeof(std::uint32_t)];
};
static_assert(sizeof(GateMessage) == kGateBytes);

}  // namespace ddprun::bench

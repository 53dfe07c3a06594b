#pragma once
// ClientStream: owns the client's connection and reads ahead, so that an answer usually costs one system call. One
// owner, one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/system/unique_fd.hpp"

namespace ddprun::store {

class ClientStream {
public:
    ClientStream() = default;
    explicit ClientStream(UniqueFd socket) : socket_(std::move(socket)) {}

    [[nodiscard]] bool is_open() const { return static_cast<bool>(socket_); }
    void close() { *this = {}; }
    /// Returns the numeric address of this end; empty when it is closed.
    [[nodiscard]] std::string local_address() const;

    // Errors: kTimeout, kClosed (also when it is closed already), kSystem. After any of them the position in the stream
    // is unknown, except after kTimeout of receive_byte().

    /// Sends all of `bytes`, and reads ahead the bytes that arrive meanwhile. `timeout` is the longest time without a
    /// byte in either direction, so a large request may take longer in total.
    [[nodiscard]] Result<void> send(std::string_view bytes, Duration timeout);
    [[nodiscard]] Result<void> receive(std::span<char> into, TimePoint deadline);
    /// kTimeout takes nothing from the stream.
    [[nodiscard]] Result<char> receive_byte(TimePoint deadline);
    template <typename T>
    [[nodiscard]] Result<T> receive_number(TimePoint deadline);
    /// Receives a length, then that many bytes. `timeout` is that of each further piece. Memory grows with the bytes
    /// that have arrived.
    [[nodiscard]] Result<std::string> receive_bytes(Duration timeout);

private:
    /// Makes sure that at least a byte is read ahead.
    [[nodiscard]] Result<void> fill(TimePoint deadline);

    UniqueFd socket_;
    std::string ahead_;
    std::size_t taken_ = 0;  ///< of ahead_
};

extern template Result<std::uint32_t> ClientStream::receive_number(TimePoint deadline);
extern template Result<std::int64_t> ClientStream::receive_number(TimePoint deadline);

}  // namespace ddprun::store

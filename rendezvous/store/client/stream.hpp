#pragma once
// ClientStream: the client's connection as a stream of bytes, read ahead so that an answer mostly costs one system
// call. One owner, one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace ddprun::store {

class ClientStream {
public:
    ClientStream() = default;
    explicit ClientStream(UniqueFd socket) : socket_(std::move(socket)) {}

    [[nodiscard]] bool is_open() const { return static_cast<bool>(socket_); }
    void close() { *this = {}; }
    /// The numeric address of this end; empty when it is closed.
    [[nodiscard]] std::string local_address() const;

    // Errors: kTimeout, kClosed (also when it is closed already), kSystem; after any but a receive_byte() that was late
    // nobody knows where the stream stands.
    /// Each further piece of `bytes` has `patience` to go: large ones take their time.
    [[nodiscard]] Result<void> send(std::string_view bytes, Duration patience);
    [[nodiscard]] Result<void> receive(std::span<char> into, TimePoint deadline);
    /// kTimeout takes nothing from the stream.
    [[nodiscard]] Result<char> receive_byte(TimePoint deadline);
    template <typename T>
    [[nodiscard]] Result<T> receive_number(TimePoint deadline);
    /// A length, then so many bytes. Each further piece of them has `patience` to come; memory follows what came.
    [[nodiscard]] Result<std::string> receive_bytes(Duration patience);

private:
    /// Makes sure that something is read ahead.
    [[nodiscard]] Result<void> fill(TimePoint deadline);

    UniqueFd socket_;
    std::string ahead_;
    std::size_t taken_ = 0;  ///< of ahead_
};

extern template Result<std::uint32_t> ClientStream::receive_number(TimePoint deadline);
extern template Result<std::int64_t> ClientStream::receive_number(TimePoint deadline);

}  // namespace ddprun::store

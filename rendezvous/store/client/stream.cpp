#include "rendezvous/store/client/stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "rendezvous/store/client/socket.hpp"
#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::store {
namespace {

constexpr std::size_t kAheadBytes = 4096;
/// The step by which a value's memory grows as the value arrives, regardless of the length that it announces.
constexpr std::uint64_t kGrowthBytes = 1 << 20;

}  // namespace

std::string ClientStream::local_address() const { return socket_ ? local_address_of(socket_.get()) : std::string{}; }

Result<void> ClientStream::send(std::string_view bytes, Duration timeout) {
    if (!socket_) return Error{Errc::kClosed, "the connection ended with an earlier error"};
    return send_and_receive(socket_.get(), bytes, ahead_, timeout);
}

Result<void> ClientStream::fill(TimePoint deadline) {
    if (taken_ < ahead_.size()) return {};
    ahead_.resize(kAheadBytes);
    taken_ = kAheadBytes;
    const auto received = receive_some(socket_.get(), ahead_, deadline);
    ahead_.resize(received ? *received : 0);
    taken_ = 0;
    if (!received) return received.error();
    return {};
}

Result<void> ClientStream::receive(std::span<char> into, TimePoint deadline) {
    if (!socket_) return Error{Errc::kClosed, "the connection ended with an earlier error"};
    while (!into.empty()) {
        if (taken_ == ahead_.size() && into.size() > kAheadBytes) return receive_all(socket_.get(), into, deadline);
        if (auto filled = fill(deadline); !filled) return filled;
        const std::size_t size = std::min(into.size(), ahead_.size() - taken_);
        std::memcpy(into.data(), ahead_.data() + taken_, size);
        into = into.subspan(size);
        taken_ += size;
    }
    return {};
}

Result<char> ClientStream::receive_byte(TimePoint deadline) {
    char byte = 0;
    if (auto received = receive({&byte, 1}, deadline); !received) return received.error();
    return byte;
}

template <typename T>
Result<T> ClientStream::receive_number(TimePoint deadline) {
    std::array<char, sizeof(T)> bytes{};
    if (auto received = receive(bytes, deadline); !received) return received.error();
    return wire::load_number<T>(bytes.data());
}
template Result<std::uint32_t> ClientStream::receive_number(TimePoint deadline);
template Result<std::int64_t> ClientStream::receive_number(TimePoint deadline);

Result<std::string> ClientStream::receive_bytes(Duration timeout) {
    const auto announced = receive_number<std::int64_t>(Clock::now() + timeout);
    if (!announced) return announced.error();
    const auto size = static_cast<std::uint64_t>(*announced);
    std::string bytes;
    while (bytes.size() < size) {
        const std::size_t have = bytes.size();
        bytes.resize(have + std::min(size - have, kGrowthBytes));
        if (auto received = receive(std::span(bytes).subspan(have), Clock::now() + timeout); !received) {
            return received.error();
        }
    }
    return bytes;
}

}  // namespace ddprun::store

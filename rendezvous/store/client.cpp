#include "rendezvous/store/client.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "rendezvous/store/client_socket.hpp"
#include "rendezvous/store/request.hpp"
#include "rendezvous/store/wire.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr Duration kReplyPatience = 60s;     ///< for an answer that the store owes at once
constexpr Duration kHandshakePatience = 5s;  ///< for the answer to the first PING of one try to connect
constexpr Duration kFirstPause = 10ms;       ///< between tries to connect; half as long again each time
constexpr Duration kLongestPause = 1s;
constexpr std::size_t kNamedKeys = 8;        ///< an error names so many keys
constexpr std::size_t kNamedKeyBytes = 120;  ///< and so much of each
/// A reply's memory grows by this as it arrives, whatever length it announces.
constexpr std::uint64_t kGrowthBytes = 1 << 20;

std::string request_of(RequestKind kind) { return {static_cast<char>(kind)}; }

std::string request_of(RequestKind kind, std::string_view key) {
    std::string request = request_of(kind);
    wire::append_bytes(request, key);
    return request;
}

std::string request_of(RequestKind kind, std::span<const std::string> keys) {
    std::string request = request_of(kind);
    wire::append_number<std::uint64_t>(request, keys.size());
    for (const std::string& key : keys) wire::append_bytes(request, key);
    return request;
}

/// The key between quotes as a message can carry it: control characters replaced, not endless.
std::string quoted(std::string_view key) {
    std::string text = "'";
    for (const char c : key.substr(0, kNamedKeyBytes)) {
        const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
        text += printable ? c : '?';
    }
    text += key.size() > kNamedKeyBytes ? "…'" : "'";
    return text;
}

std::string quoted(std::span<const std::string> keys) {
    std::string text = keys.size() == 1 ? "key " : "keys ";
    for (std::size_t i = 0; i < std::min(keys.size(), kNamedKeys); ++i) {
        if (i > 0) text += ", ";
        text += quoted(keys[i]);
    }
    if (keys.size() > kNamedKeys) text += fmt::format(" and {} more", keys.size() - kNamedKeys);
    return text;
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// VALIDATE and PING: proves that a store answers there. Any other answer is a failed try.
Result<void> shake_hands(int socket, TimePoint deadline) {
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    std::string greeting = request_of(RequestKind::kValidate);
    wire::append_number(greeting, wire::kMagic);
    greeting += request_of(RequestKind::kPing);
    wire::append_number(greeting, nonce);
    if (auto sent = send_all(socket, greeting, deadline); !sent) return sent.error();
    std::array<char, sizeof nonce> answer{};
    if (auto received = receive_all(socket, answer, deadline); !received) return received.error();
    if (wire::load_number<std::uint32_t>(answer.data()) != nonce) {
        return Error{Errc::kMalformed, "what listens there is not a TCPStore"};
    }
    return {};
}

Result<UniqueFd> connect_once(const Endpoint& endpoint, TimePoint deadline) {
    auto socket = connect_socket(endpoint, deadline);
    if (!socket) return socket;
    const auto greeted = shake_hands(socket->get(), std::min(deadline, Clock::now() + kHandshakePatience));
    if (!greeted) return greeted.error();
    return socket;
}

}  // namespace

Result<Client> Client::connect(const Endpoint& endpoint, TimePoint deadline) {
    const TimePoint begun = Clock::now();
    Duration pause = kFirstPause;
    for (int tries = 1;; ++tries) {
        auto socket = connect_once(endpoint, deadline);
        if (socket) return Client(std::move(*socket), endpoint);
        if (Clock::now() + pause >= deadline) {
            const bool late = socket.error().code == Errc::kTimeout;
            return Error{
                late ? Errc::kTimeout : Errc::kUnreachable,
                fmt::format("cannot reach the store at {}: {}, {} {} in {:.1f} s. Is its host up, the store running "
                            "there, and the port right?",
                            to_string(endpoint), socket.error().message, tries, tries == 1 ? "try" : "tries",
                            seconds(Clock::now() - begun))};
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 3 / 2, kLongestPause);
    }
}

Result<void> Client::set(std::string_view key, std::string_view value) {
    std::string request = request_of(RequestKind::kSet, key);
    wire::append_bytes(request, value);
    if (auto sent = send(request); !sent) return give_up("set key " + quoted(key), sent.error());
    return {};
}

Result<std::string> Client::get(std::string_view key, TimePoint deadline) {
    const std::array<std::string, 1> keys{std::string(key)};
    if (auto there = wait(keys, deadline); !there) return there.error();
    auto sent = send(request_of(RequestKind::kGet, key));
    auto value = sent ? receive_bytes() : sent.error();
    if (!value) return give_up("get key " + quoted(key), value.error());
    return value;
}

Result<std::int64_t> Client::add(std::string_view key, std::int64_t amount) {
    std::string request = request_of(RequestKind::kAdd, key);
    wire::append_number(request, amount);
    auto sum = ask_number<std::int64_t>(request);
    if (!sum) return give_up("add to key " + quoted(key), sum.error());
    return sum;
}

Result<std::string> Client::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
    std::string request = request_of(RequestKind::kCompareSet, key);
    wire::append_bytes(request, expected);
    wire::append_bytes(request, desired);
    auto sent = send(request);
    auto value = sent ? receive_bytes() : sent.error();
    if (!value) return give_up("compare and set key " + quoted(key), value.error());
    return value;
}

Result<void> Client::wait(std::span<const std::string> keys, TimePoint deadline) {
    const TimePoint begun = Clock::now();
    const auto failed = [&](const Error& cause) { return give_up("wait for " + quoted(keys), cause); };
    if (auto sent = send(request_of(RequestKind::kWait, keys)); !sent) return failed(sent.error());

    std::array<char, 1> answer{};
    auto received = receive_all(socket_.get(), answer, deadline);
    if (received) {
        if (answer[0] == wire::kStopWaiting) return {};
        return failed(Error{Errc::kMalformed, fmt::format("unexpected answer {}", static_cast<int>(answer[0]))});
    }
    if (received.error().code != Errc::kTimeout) return failed(received.error());

    const Duration waited = Clock::now() - begun;
    auto came = cancel_wait();
    if (!came) return failed(came.error());
    if (*came) return {};
    return Error{Errc::kTimeout, fmt::format("waited {:.1f} s for {} at {}: {}", seconds(waited), quoted(keys),
                                             to_string(endpoint_), keys.size() == 1 ? "not set" : "not all set")};
}

Result<bool> Client::cancel_wait() {
    if (auto sent = send(request_of(RequestKind::kCancelWait)); !sent) return sent.error();
    auto answer = receive_number<std::int8_t>();
    if (!answer) return answer.error();
    const bool came = *answer == wire::kStopWaiting;
    // The keys came while the request was under way: both answers are sent, in this order.
    if (came) answer = receive_number<std::int8_t>();
    if (!answer) return answer.error();
    if (*answer != wire::kWaitCanceled) return Error{Errc::kMalformed, fmt::format("unexpected answer {}", *answer)};
    return came;
}

Result<bool> Client::check(std::span<const std::string> keys) {
    auto missing = ask_number<std::int8_t>(request_of(RequestKind::kCheck, keys));
    if (!missing) return give_up("check " + quoted(keys), missing.error());
    return *missing == 0;
}

Result<bool> Client::delete_key(std::string_view key) {
    auto deleted = ask_number<std::int64_t>(request_of(RequestKind::kDeleteKey, key));
    if (!deleted) return give_up("delete key " + quoted(key), deleted.error());
    return *deleted != 0;
}

Result<std::int64_t> Client::num_keys() {
    auto number = ask_number<std::int64_t>(request_of(RequestKind::kGetNumKeys));
    if (!number) return give_up("count the keys", number.error());
    return number;
}

std::string Client::local_address() const { return socket_ ? local_address_of(socket_.get()) : std::string{}; }

Result<void> Client::send(std::string_view request) {
    if (!socket_) return Error{Errc::kClosed, "the connection ended with an earlier error"};
    return send_all(socket_.get(), request, Clock::now() + kReplyPatience);
}

Result<void> Client::receive(std::span<char> into) {
    return receive_all(socket_.get(), into, Clock::now() + kReplyPatience);
}

template <typename T>
Result<T> Client::receive_number() {
    std::array<char, sizeof(T)> bytes{};
    if (auto received = receive(bytes); !received) return received.error();
    return wire::load_number<T>(bytes.data());
}

template <typename T>
Result<T> Client::ask_number(std::string_view request) {
    if (auto sent = send(request); !sent) return sent.error();
    return receive_number<T>();
}

Result<std::string> Client::receive_bytes() {
    auto announced = receive_number<std::uint64_t>();
    if (!announced) return announced.error();
    std::string bytes;
    while (bytes.size() < *announced) {
        const std::size_t have = bytes.size();
        bytes.resize(have + std::min(*announced - have, kGrowthBytes));
        if (auto received = receive(std::span(bytes).subspan(have)); !received) return received.error();
    }
    return bytes;
}

Error Client::give_up(std::string_view action, const Error& cause) {
    socket_.reset();
    return {cause.code, fmt::format("cannot {} at {}: {}", action, to_string(endpoint_), cause.message)};
}

}  // namespace ddprun::store

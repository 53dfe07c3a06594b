#include "rendezvous/store/client/connect.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "common/text/number.hpp"
#include "rendezvous/store/client/requests.hpp"
#include "rendezvous/store/client/socket.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr Duration kGreetingTimeout = 5s;  ///< for the answer to the greeting of one try
constexpr Duration kFirstPause = 10ms;     ///< between tries; half as long again each time
constexpr Duration kMaxPause = 1s;
constexpr Duration kConclusiveTime = 1s;  ///< a try that timed out after less than this says nothing about the store

constexpr std::string_view kSilent = "something listens there and does not answer";

/// The request whose answer proves that a store listens. PING is the better proof, but servers of PyTorch 2.2 to 2.4 do
/// not know it and close the connection.
enum class Proof { kPing, kNumberOfKeys };

/// Returns whether the bytes look like the answer of a text protocol to a request that it cannot read.
bool is_text(std::string_view bytes) {
    return std::ranges::all_of(bytes, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\r' || c == '\n'; });
}

Error no_store(std::string_view answer) {
    return {Errc::kMismatch, answer.starts_with("HTTP") ? "an HTTP server answers there, not a TCPStore"
                             : is_text(answer)          ? fmt::format("not a TCPStore: it answers '{}…'", answer)
                                                        : "the server there is not a TCPStore of PyTorch 2.2 or later"};
}

Result<void> greet(ClientStream& stream, Proof proof, TimePoint deadline) {
    std::string greeting = request_of(RequestKind::kValidate);
    wire::append_number(greeting, wire::kMagic);
    const auto nonce = static_cast<std::uint32_t>(::getpid());
    if (proof == Proof::kPing) {
        greeting += request_of(RequestKind::kPing);
        wire::append_number(greeting, nonce);
    } else {
        greeting += request_of(RequestKind::kGetNumKeys);
    }
    if (auto sent = stream.send(greeting, kGreetingTimeout); !sent) return sent.error();
    std::array<char, sizeof(std::int64_t)> bytes{};
    const auto answer = std::span(bytes).first(proof == Proof::kPing ? sizeof nonce : bytes.size());
    if (auto received = stream.receive(answer, deadline); !received) return received.error();
    const std::string_view text(answer.data(), answer.size());
    const bool right = proof == Proof::kPing ? wire::load_number<std::uint32_t>(bytes.data()) == nonce
                                             : wire::load_number<std::uint64_t>(bytes.data()) < (1u << 31);
    if (!right) return no_store(text);
    return {};
}

Result<ClientStream> connect_once(const Endpoint& endpoint, Proof proof, TimePoint deadline) {
    auto socket = connect_socket(endpoint, deadline);
    if (!socket) return socket.error();
    ClientStream stream(std::move(*socket));
    if (auto greeted = greet(stream, proof, std::min(deadline, Clock::now() + kGreetingTimeout)); !greeted) {
        Error error = greeted.error();
        if (error.code == Errc::kTimeout) error.message = kSilent;
        return error;
    }
    return stream;
}

std::string_view advice(const Error& last) {
    if (last.code == Errc::kMismatch) return "Is the port right? Another program listens there.";
    if (last.code == Errc::kClosed) {
        return "A server there accepts connections and ends them: is the port right, and does the store admit this "
               "host?";
    }
    if (last.message == kSilent) {
        return "Is the port right? A server of another kind, such as a web server, may be waiting for the rest of a "
               "request; or the store hangs.";
    }
    if (last.code == Errc::kNotFound) {
        return "Is the name right, and do this host's name servers know it? A numeric address needs none.";
    }
    if (last.code == Errc::kTimeout) return "Is its host up, or does a firewall drop the packets?";
    return "Is its host up, the store running there, and the port right?";
}

}  // namespace

Result<ClientStream> connect_stream(const Endpoint& endpoint, TimePoint deadline, const SlowNotice& notice) {
    const TimePoint begun = Clock::now();
    bool notice_due = static_cast<bool>(notice.report);
    Duration pause = kFirstPause;
    Proof proof = Proof::kPing;
    Error last;
    for (int tries = 1;; ++tries) {
        const bool inconclusive = tries > 1 && deadline - Clock::now() < kConclusiveTime;
        // A name server that does not answer must not delay the notice.
        const bool short_try = tries == 1 && notice_due;
        auto stream = connect_once(endpoint, proof, short_try ? std::min(deadline, begun + notice.after) : deadline);
        if (stream) return stream;
        if (!inconclusive || stream.error().code != Errc::kTimeout) last = stream.error();
        const auto efforts = [&] {
            return fmt::format("{}, {} in {}", last.message, counted(tries, "try", "tries"),
                               rounded_seconds_text(Clock::now() - begun));
        };
        const Duration left = deadline - Clock::now();
        if (last.code == Errc::kMismatch || left < kFirstPause) {
            const bool keep = last.code == Errc::kMismatch || last.code == Errc::kTimeout;
            return Error{
                keep ? last.code : make_error_code(Errc::kUnreachable),
                fmt::format("cannot reach the store at {}: {}. {}", to_string(endpoint), efforts(), advice(last))};
        }
        if (notice_due && Clock::now() >= begun + notice.after) {
            notice_due = false;
            notice.report(fmt::format("cannot reach the store at {} so far: {}; going on for up to {}. {}",
                                      to_string(endpoint), efforts(),
                                      seconds_text(std::chrono::ceil<std::chrono::seconds>(left)), advice(last)));
        }
        if (last.code == Errc::kClosed) proof = proof == Proof::kPing ? Proof::kNumberOfKeys : Proof::kPing;
        // Towards the deadline the tries come closer together, so that all of the time is used.
        std::this_thread::sleep_for(std::min(pause, left / 2));
        pause = std::min(pause * 3 / 2, kMaxPause);
    }
}

}  // namespace ddprun::store

#include "rendezvous/store/client_greeting.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/store/client_requests.hpp"
#include "rendezvous/store/client_socket.hpp"
#include "rendezvous/store/client_words.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 5s;      ///< for the answer to the greeting of one try
constexpr Duration kFirstPause = 10ms;  ///< between tries; half as long again each time
constexpr Duration kLongestPause = 1s;
constexpr Duration kEnough = 1s;  ///< to tell from a try that timed out that nobody answers

constexpr std::string_view kSilent = "something listens there and does not answer";

/// What proves that a store answers. PING is the better proof; servers of PyTorch 2.2 to 2.4 do not know it and close.
enum class Proof { kPing, kNumberOfKeys };

/// Whether they are how a server of another kind answers what it cannot read.
bool is_text(std::string_view bytes) {
    return std::ranges::all_of(bytes, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\r' || c == '\n'; });
}

Error no_store(std::string_view answer) {
    return {Errc::kMismatch, answer.starts_with("HTTP") ? "an HTTP server answers there, not a TCPStore"
                             : is_text(answer)          ? fmt::format("not a TCPStore: it answers '{}…'", answer)
                                               : "what answers there is not a TCPStore of PyTorch 2.2 or later"};
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
    if (auto sent = stream.send(greeting, kPatience); !sent) return sent.error();
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
    if (auto greeted = greet(stream, proof, std::min(deadline, Clock::now() + kPatience)); !greeted) {
        Error error = greeted.error();
        if (error.code == Errc::kTimeout) error.message = kSilent;
        return error;
    }
    return stream;
}

std::string_view advice(const Error& last) {
    if (last.code == Errc::kMismatch) return "Is the port right? Another program listens there.";
    if (last.code == Errc::kClosed) {
        return "Something there accepts connections and ends them: is the port right, and does the store admit this "
               "host?";
    }
    if (last.message == kSilent) {
        return "Is the port right? A server of another kind may wait for more, as web servers do; or the store hangs.";
    }
    if (last.code == Errc::kNotFound) {
        return "Is the name right, and do this host's name servers know it? A numeric address needs none.";
    }
    if (last.code == Errc::kTimeout) return "Is its host up, or does a firewall drop the packets?";
    return "Is its host up, the store running there, and the port right?";
}

}  // namespace

Result<ClientStream> connect_stream(const Endpoint& endpoint, TimePoint deadline, const Impatience& impatience) {
    const TimePoint begun = Clock::now();
    bool quiet = static_cast<bool>(impatience.tell);  // it is still to be told
    Duration pause = kFirstPause;
    Proof proof = Proof::kPing;
    Error last;
    for (int tries = 1;; ++tries) {
        const bool short_of_time = tries > 1 && deadline - Clock::now() < kEnough;
        // A name server that is silent must not keep us so, too.
        const bool short_try = tries == 1 && quiet;
        auto stream =
            connect_once(endpoint, proof, short_try ? std::min(deadline, begun + impatience.after) : deadline);
        if (stream) return stream;
        // What ran out of time because there was little says less than the one before.
        if (!short_of_time || stream.error().code != Errc::kTimeout) last = stream.error();
        const auto efforts = [&] {
            return fmt::format("{}, {} {} in {:.1f} s", last.message, tries, tries == 1 ? "try" : "tries",
                               seconds(Clock::now() - begun));
        };
        const Duration left = deadline - Clock::now();
        if (last.code == Errc::kMismatch || left < kFirstPause) {
            const bool keep = last.code == Errc::kMismatch || last.code == Errc::kTimeout;
            return Error{
                keep ? last.code : make_error_code(Errc::kUnreachable),
                fmt::format("cannot reach the store at {}: {}. {}", to_string(endpoint), efforts(), advice(last))};
        }
        if (quiet && Clock::now() >= begun + impatience.after) {
            quiet = false;
            impatience.tell(fmt::format("cannot reach the store at {} so far: {}; going on for up to {:.0f} s. {}",
                                        to_string(endpoint), efforts(), std::ceil(seconds(left)), advice(last)));
        }
        if (last.code == Errc::kClosed) proof = proof == Proof::kPing ? Proof::kNumberOfKeys : Proof::kPing;
        // Towards the end the tries come closer together: none of the time is given away.
        std::this_thread::sleep_for(std::min(pause, left / 2));
        pause = std::min(pause * 3 / 2, kLongestPause);
    }
}

}  // namespace ddprun::store

// Fuzz target: what a stranger sends to the control port until its first message is complete (HTTP, WebSocket, TLS or
// anything else), over a socket pair. Input: a byte for the rules of the port, one for the pieces, then the stream.
// Without the key no connection is accepted; a connection that ends is dropped at once; its cost is bounded.
#include <sanitizer/allocator_interface.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/job_key.hpp"
#include "common/system/unique_fd.hpp"
#include "rendezvous/daemon/session.hpp"
#include "tests/fuzz/check.hpp"

namespace {

using namespace ddprun;
namespace asio = boost::asio;

/// Memory that one connection may use, with what OpenSSL keeps of its first one.
constexpr std::size_t kMaxBytes = 512u << 10;
constexpr std::size_t kMaxAnswerBytes = 4u << 10;

std::size_t held_bytes = 0;
std::size_t max_held_bytes = 0;

void allocated(const volatile void*, std::size_t size) {
    held_bytes += size;
    max_held_bytes = std::max(max_held_bytes, held_bytes);
}
void freed(const volatile void* block) {
    const std::size_t size = block == nullptr ? 0 : __sanitizer_get_allocated_size(const_cast<const void*>(block));
    held_bytes -= std::min(held_bytes, size);
}
[[maybe_unused]] const int hooked = __sanitizer_install_malloc_and_free_hooks(allocated, freed);

struct Port {
    transport::Security security;
    bool requires_key;
};

/// The four rules that a port may have. No connection is over loopback for them.
Port port(unsigned choice) {
    static const std::array<transport::Security, 4> kRules = [] {
        JobKey::Bytes bytes;
        std::ranges::fill(bytes, static_cast<unsigned char>(7));
        const JobKey key(bytes, "the fuzzer");
        return std::array{*transport::make_security(key, false), *transport::make_security(key, true),
                          *transport::make_security(std::nullopt, false),
                          *transport::make_security(std::nullopt, true)};
    }();
    return {kRules[choice % 4], choice % 2 == 0};
}

class Connection {
public:
    explicit Connection(const Port& port) {
        std::array<int, 2> ends;
        check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no socket pair");
        ours_ = UniqueFd(ends[0]);
        asio::ip::tcp::socket socket(io_);
        socket.assign(asio::ip::tcp::v4(), ends[1]);
        auto greeted = [this](std::exception_ptr thrown, Result<daemon::Greeting> greeting) {
            check(thrown == nullptr, "an exception");
            greeting_.emplace(std::move(greeting));
        };
        asio::co_spawn(io_,
                       daemon::greet(
                           std::move(socket), Clock::now() + std::chrono::hours(1), daemon::kMaxStrangersJoinBytes,
                           [] { return "0 nodes have joined\n"; }, port.security),
                       std::move(greeted));
        run();
    }

    void send(std::string_view bytes) {
        static_cast<void>(::send(ours_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));  // it may be closed
        run();
    }
    void end() {
        ::shutdown(ours_.get(), SHUT_WR);
        run();
    }

    [[nodiscard]] const std::optional<Result<daemon::Greeting>>& greeting() const { return greeting_; }
    [[nodiscard]] const std::string& answer() const { return answer_; }

private:
    void run() {
        io_.restart();
        io_.poll();
        std::array<char, 4096> buffer;
        for (ssize_t size = 0; (size = ::recv(ours_.get(), buffer.data(), buffer.size(), 0)) > 0;)
            answer_.append(buffer.data(), static_cast<std::size_t>(size));
    }

    UniqueFd ours_;
    asio::io_context io_{1};
    std::optional<Result<daemon::Greeting>> greeting_;
    std::string answer_;
};

bool is_answer(std::string_view text) {
    constexpr char kTlsAlert = 0x15;
    constexpr char kTlsHandshake = 0x16;
    return text.empty() || text.starts_with("HTTP/1.") || text[0] == kTlsAlert || text[0] == kTlsHandshake;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const Port rules = port(data[0]);
    const std::size_t piece = data[1] == 0 ? size : data[1];
    std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);

    held_bytes = max_held_bytes = 0;
    Connection connection(rules);
    for (; !input.empty(); input.remove_prefix(std::min(piece, input.size()))) connection.send(input.substr(0, piece));
    connection.end();

    check(connection.greeting().has_value(), "the handshake goes on after the end of the connection");
    const Result<daemon::Greeting>& greeting = *connection.greeting();
    check(!greeting || !rules.requires_key, "a connection without the key was accepted");
    check(greeting || !greeting.error().message.empty(), "an error without a text");
    check(is_answer(connection.answer()), "an answer of another protocol: " + connection.answer());
    check(connection.answer().size() <= kMaxAnswerBytes, "an answer that is longer than the request deserves");
    check(max_held_bytes <= kMaxBytes, "a connection costs " + std::to_string(max_held_bytes) + " bytes");
    return 0;
}

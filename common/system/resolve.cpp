#include "rendezvous/store/client_resolve.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/signals_blocked.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

/// Also when the deadline has passed: a name that this host knows itself is found by then.
constexpr Duration kLeastPatience = 200ms;

Result<Addresses> look_up(const Endpoint& endpoint, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
    if (failed != 0) {
        const std::string why =
            failed == EAI_SYSTEM ? std::generic_category().message(errno) : std::string(::gai_strerror(failed));
        return Error{Errc::kNotFound, fmt::format("host '{}' is unknown ({})", endpoint.host, why)};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    Addresses addresses;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
        SocketAddress& address = addresses.emplace_back();
        address.size = std::min<socklen_t>(entry->ai_addrlen, sizeof address.bytes);
        std::memcpy(&address.bytes, entry->ai_addr, address.size);
    }
    return addresses;
}

using Question = std::packaged_task<Result<Addresses>()>;

/// Answers it on a thread that nobody waits for.
void ask(const std::shared_ptr<Question>& question) {
    try {
        const SignalsBlocked blocked;  // signals are for the program's own threads
        std::thread([question] { (*question)(); }).detach();
    } catch (const std::system_error&) {
        (*question)();  // no thread is to be had: better late than never
    }
}

}  // namespace

Result<Addresses> ask_system(const Endpoint& endpoint) { return look_up(endpoint, 0); }

// getaddrinfo(3) can neither be given a deadline nor be interrupted, and a name server that hangs holds it for as long
// as resolv.conf(5) says, or a directory service for ever. So it runs on a thread that is left to itself when it is
// late: it owns its question and shares nothing else, and a process may exit under it. (getaddrinfo_a(3) does the same
// with threads of its own; what it works on cannot be cancelled either, and it would write into memory that has to stay
// until then.)
Result<Addresses> resolve(const Endpoint& endpoint, TimePoint deadline, LookUp look_up_name) {
    if (auto numeric = look_up(endpoint, AI_NUMERICHOST)) return numeric;
    const auto question = std::make_shared<Question>(
        [endpoint, look_up_name = std::move(look_up_name)] { return look_up_name(endpoint); });
    std::future<Result<Addresses>> answer = question->get_future();
    ask(question);
    if (answer.wait_until(std::max(deadline, Clock::now() + kLeastPatience)) == std::future_status::ready) {
        return answer.get();
    }
    return Error{Errc::kNotFound, fmt::format("no name server has answered for '{}'", endpoint.host)};
}

}  // namespace ddprun::store

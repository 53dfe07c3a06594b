#include "common/system/resolve.hpp"

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

#include "common/system/signals_blocked.hpp"

namespace ddprun {
namespace {

using namespace std::chrono_literals;

/// Applies even if the deadline has passed. It is enough for a name that this host itself knows.
constexpr Duration kMinTimeout = 200ms;

Result<Addresses> look_up_now(const Endpoint& endpoint, int flags) {
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

}  // namespace

Result<Addresses> ask_system(const Endpoint& endpoint) { return look_up_now(endpoint, 0); }

Result<Addresses> numeric_address(const Endpoint& endpoint) { return look_up_now(endpoint, AI_NUMERICHOST); }

// getaddrinfo_a(3) also uses threads of its own. Its running requests cannot be cancelled either, and they write into
// memory that would have to stay valid until they end.
Result<void> look_up_detached(Endpoint endpoint, LookUp look_up, std::function<void(Result<Addresses>)> done) {
    try {
        const SignalsBlocked blocked;  // signals are for the program's own threads
        std::thread([endpoint = std::move(endpoint), look_up = std::move(look_up), done = std::move(done)] {
            Result<Addresses> answer = Error{Errc::kSystem, "out of memory while looking up a host name"};
            try {
                answer = look_up(endpoint);
            } catch (const std::exception& error) {  // nothing else would catch it on this thread
                answer = Error{Errc::kSystem, fmt::format("cannot look up host '{}': {}", endpoint.host, error.what())};
            }
            done(std::move(answer));
        }).detach();
    } catch (const std::system_error& error) {
        return system_error("cannot start a thread to ask a name server", error.code().value());
    }
    return {};
}

Result<Addresses> resolve(const Endpoint& endpoint, TimePoint deadline, LookUp look_up) {
    if (auto numeric = numeric_address(endpoint)) return numeric;
    const auto promise = std::make_shared<std::promise<Result<Addresses>>>();
    std::future<Result<Addresses>> answer = promise->get_future();
    const auto asked = look_up_detached(
        endpoint, look_up, [promise](Result<Addresses> addresses) { promise->set_value(std::move(addresses)); });
    if (!asked) return look_up(endpoint);  // blocks, for lack of a thread
    if (answer.wait_until(std::max(deadline, Clock::now() + kMinTimeout)) == std::future_status::ready) {
        return answer.get();
    }
    return Error{Errc::kNotFound, fmt::format("no name server has answered for '{}'", endpoint.host)};
}

}  // namespace ddprun

#include "rendezvous/client/dial.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cctype>
#include <cstring>

#include "common/system/peer_owner.hpp"
#include "common/system/port_holder.hpp"
#include "common/text/number.hpp"
#include "rendezvous/client/dial_plan.hpp"
#include "rendezvous/client/foreign_store.hpp"
#include "rendezvous/client/resolve.hpp"
#include "rendezvous/transport/completion.hpp"
#include "rendezvous/transport/websocket.hpp"

namespace ddprun::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using transport::Channel;
using transport::Security;

constexpr milliseconds kLookTimeout{1000};  // for the question which server it is that fails the handshake
constexpr milliseconds kFirstReport{2000};  // a longer wait is reported on the log
constexpr milliseconds kReportAgain{15'000};

/// Looks for a better cause than that of a connection that was closed: a daemon closes those of other users at once.
Error explained(Error cause, const tcp::endpoint& to, const SocketAddress& address) {
    if (cause.code != Errc::kClosed || !PeerOwners().is_own_address(address.bytes)) return cause;
    const auto holder = find_port_holder({to.address().to_string(), to.port()});
    if (!holder || holder->uid == ::geteuid()) return cause;
    return {Errc::kInUse, fmt::format("a process of user {}", holder->uid)};
}

/// Tries every address once. Returns the first connection, else DialPlan::error_of_try().
awaitable<Result<std::shared_ptr<Channel>>> try_all(Endpoint endpoint, TimePoint deadline, milliseconds try_time,
                                                    Security security) {
    const Result<Addresses> addresses = co_await async_resolve(std::move(endpoint), deadline);
    if (!addresses) co_return addresses.error();
    Error cause{Errc::kUnreachable, "the name has no address"};
    for (const SocketAddress& address : *addresses) {
        tcp::endpoint to;
        if (address.size > to.capacity()) continue;
        std::memcpy(to.data(), &address.bytes, address.size);
        to.resize(address.size);
        const TimePoint until = std::min(deadline, Clock::now() + try_time);
        auto channel = co_await transport::connect_websocket(to, until, security);
        if (channel) co_return channel;
        cause = DialPlan::error_of_try(std::move(cause), explained(channel.error(), to, address));
    }
    co_return cause;
}

std::string uncapitalised(std::string text) {
    const bool word = text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]));
    if (word) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
    return text;
}

Error refused(const Endpoint& endpoint, const Error& cause) {
    if (cause.code == Errc::kMismatch) {
        return {cause.code,
                fmt::format("the ddprund at {} is of another version: {}. Use the same ddprun on all nodes.",
                            to_string(endpoint), cause.message)};
    }
    if (cause.code == Errc::kInUse) {
        return {cause.code,
                fmt::format("the server at {} is {} on this host, where a daemon and its clients must belong to one "
                            "user (this one is {}). Pass another --rdzv-endpoint, or change the user.",
                            to_string(endpoint), cause.message, ::geteuid())};
    }
    if (cause.code == Errc::kUntrusted)
        return {cause.code, fmt::format("the ddprund at {} {}", to_string(endpoint), cause.message)};
    return {cause.code,
            fmt::format("the server at {} does not answer as the ddprund of this job ({}). Most likely another program "
                        "has that port; else it is a ddprund of another version, with another job key, or behind a "
                        "proxy. Pass another --rdzv-endpoint, or use one ddprun and one job key on all nodes.",
                        to_string(endpoint), cause.message)};
}

/// Looks for a better cause than that of the last try: a connection that fails in the handshake may be to the TCPStore
/// of a torchrun, which closes it or waits for more. A slow ddprund answers as a TCPStore, too; now that it does, one
/// more try reaches it.
awaitable<Result<std::shared_ptr<Channel>>> look_again(Endpoint endpoint, Error cause, Security security) {
    const bool in_handshake = cause.code == Errc::kClosed || cause.code == Errc::kTimeout;
    if (!in_handshake) co_return cause;
    const bool store = co_await is_tcp_store(endpoint, Clock::now() + kLookTimeout);
    if (!store) co_return cause;
    auto channel =
        co_await try_all(std::move(endpoint), Clock::now() + kLookTimeout, kLookTimeout, std::move(security));
    if (channel) co_return channel;
    co_return Error{Errc::kUnreachable,
                    "a TCPStore answers there, perhaps that of torchrun, and all nodes of a job need ddprun"};
}

Error gave_up(const Endpoint& endpoint, const DialPlan& plan, Duration waited) {
    const Error& cause = plan.cause();
    const Errc code = plan.is_gone()                 ? Errc::kClosed
                      : cause.code == Errc::kTimeout ? Errc::kTimeout
                                                     : Errc::kUnreachable;
    return {code, fmt::format("cannot reach the rendezvous daemon at {}: {}, {} in {}. {}.", to_string(endpoint),
                              uncapitalised(cause.message), counted(plan.tries(), "try", "tries"),
                              rounded_seconds_text(waited), remedy(endpoint, cause))};
}

/// Returns the remedy for a wait that has a cause which no other node mends by its start; else nothing.
std::string remedy_of_wait(const Endpoint& endpoint, const Error& cause) {
    return cause.code == Errc::kNotFound ? ". " + remedy(endpoint, cause) : "";
}

}  // namespace

std::string remedy(const Endpoint& endpoint, const Error& cause) {
    namespace errc = boost::system::errc;
    if (cause.code == Errc::kNotFound)
        return fmt::format("Correct the name, or let this host resolve it: `getent hosts {}` shows whether it does",
                           endpoint.host);
    if (cause.code == errc::host_unreachable || cause.code == errc::network_unreachable)
        return fmt::format(
            "{} is down, or the network to it is interrupted: find out which, or pass another --rdzv-endpoint",
            endpoint.host);
    if (cause.code == Errc::kTimeout)
        return fmt::format(
            "{} is down or cut off, a firewall drops the connection, or the process there is stopped: find out which, "
            "or pass another --rdzv-endpoint",
            endpoint.host);
    return "Is ddprund or the first ddprun running there? Start it, or pass another --rdzv-endpoint";
}

awaitable<Result<std::shared_ptr<Channel>>> dial(Endpoint endpoint, TimePoint deadline, Pace pace, Security security) {
    const TimePoint start = Clock::now();
    TimePoint report_at = start + kFirstReport;
    DialPlan plan(deadline, pace);
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (true) {
        const milliseconds try_time = plan.begin_try(Clock::now());
        auto channel = co_await try_all(endpoint, deadline, try_time, security);
        if (channel) co_return channel;
        const TimePoint now = Clock::now();
        const DialPlan::Next next = plan.failed(channel.error(), now);
        if (next == DialPlan::Next::kForeign) co_return refused(endpoint, plan.cause());

        const bool last = next == DialPlan::Next::kGiveUp;
        if (last || (now >= report_at && pace.reports)) {
            channel = co_await look_again(endpoint, plan.cause(), security);
            if (channel) co_return channel;
            plan.explain(channel.error());
        }
        if (last) co_return gave_up(endpoint, plan, now - start);
        if (now >= report_at && pace.reports) {
            spdlog::info("waiting for the rendezvous daemon at {}: {}; giving up in {}{}", to_string(endpoint),
                         uncapitalised(plan.cause().message),
                         seconds_text(std::chrono::ceil<std::chrono::seconds>(deadline - now)),
                         remedy_of_wait(endpoint, plan.cause()));
            report_at = now + kReportAgain;
        }
        timer.expires_after(plan.next_pause());
        co_await timer.async_wait(transport::kTuple);
    }
}

}  // namespace ddprun::client

#include "rendezvous/client/resolve.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/signals_blocked.hpp"

namespace ddprun::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using boost::system::error_code;

/// What the thread and the coroutine that waits for it share.
struct Question {
    std::mutex mutex;
    asio::steady_timer* waiting = nullptr;  ///< null: nobody waits any more, and the io_context may be gone
    std::optional<Result<Addresses>> answer;
};

/// Lets go of the question, also when the coroutine is destroyed while it waits.
class Waiting {
public:
    Waiting(std::shared_ptr<Question> question, asio::steady_timer& timer) : question_(std::move(question)) {
        question_->waiting = &timer;
    }
    ~Waiting() {
        const std::lock_guard lock(question_->mutex);
        question_->waiting = nullptr;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    std::shared_ptr<Question> question_;
};

void answer(const std::shared_ptr<Question>& question, Result<Addresses> addresses) {
    const std::lock_guard lock(question->mutex);
    question->answer = std::move(addresses);
    if (question->waiting == nullptr) return;
    asio::post(question->waiting->get_executor(), [question] {
        // On the coroutine's own thread: it cannot go away meanwhile.
        if (question->waiting != nullptr) question->waiting->cancel();
    });
}

/// Errors: no thread is to be had.
Result<void> ask(std::shared_ptr<Question> question, Endpoint endpoint, LookUp look_up) {
    try {
        const SignalsBlocked blocked;  // signals are for the thread of the io_context
        std::thread([question = std::move(question), endpoint = std::move(endpoint), look_up = std::move(look_up)] {
            answer(question, look_up(endpoint));
        }).detach();
    } catch (const std::system_error& error) {
        return system_error("cannot start a thread to ask a name server", error.code().value());
    }
    return {};
}

}  // namespace

Result<Addresses> ask_system(const Endpoint& endpoint) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const std::string service = fmt::format("{}", endpoint.port);
    if (const int failure = ::getaddrinfo(endpoint.host.c_str(), service.c_str(), &hints, &list); failure != 0) {
        return Error{Errc::kNotFound, fmt::format("no address for '{}': {}", endpoint.host, ::gai_strerror(failure))};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
    Addresses addresses;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        asio::ip::tcp::endpoint address;
        if (entry->ai_addrlen > address.capacity()) continue;
        std::memcpy(address.data(), entry->ai_addr, entry->ai_addrlen);
        address.resize(entry->ai_addrlen);
        addresses.push_back(address);
    }
    return addresses;
}

awaitable<Result<Addresses>> resolve(Endpoint endpoint, TimePoint deadline, LookUp look_up) {
    error_code ec;
    const auto numeric = asio::ip::make_address(endpoint.host, ec);
    if (!ec) co_return Addresses{asio::ip::tcp::endpoint(numeric, endpoint.port)};

    const auto question = std::make_shared<Question>();
    asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
    const Waiting waiting(question, timer);
    const std::string host = endpoint.host;
    if (const Result<void> asked = ask(question, std::move(endpoint), std::move(look_up)); !asked)
        co_return asked.error();
    // Ends at the deadline, or when the answer has come.
    std::tie(ec) = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    std::optional<Result<Addresses>> answer;
    {
        const std::lock_guard lock(question->mutex);
        answer = std::move(question->answer);
    }
    if (answer) co_return std::move(*answer);
    co_return Error{Errc::kTimeout, fmt::format("no name server has answered for '{}'", host)};
}

}  // namespace ddprun::client

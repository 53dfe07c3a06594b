#include "rendezvous/client/resolve.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "common/mutex.hpp"
#include "rendezvous/transport/completion.hpp"

namespace ddprun::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

/// State that the detached thread shares with the coroutine that waits for it.
struct Question {
    Mutex mutex;
    asio::steady_timer* waiting GUARDED_BY(mutex) =
        nullptr;  ///< null: the coroutine has ended, and the io_context may have, too
    std::optional<Result<Addresses>> answer GUARDED_BY(mutex);
};

/// Registers a coroutine's timer with the question, and removes it when the coroutine ends or is destroyed.
class Waiting {
public:
    Waiting(std::shared_ptr<Question> question, asio::steady_timer& timer) : question_(std::move(question)) {
        question_->waiting = &timer;
    }
    ~Waiting() {
        const Lock lock(question_->mutex);
        question_->waiting = nullptr;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    std::shared_ptr<Question> question_;
};

/// Stores the answer and wakes the coroutine. Called on the detached thread.
void answer(const std::shared_ptr<Question>& question, Result<Addresses> addresses) {
    const Lock lock(question->mutex);
    question->answer = std::move(addresses);
    if (question->waiting == nullptr) return;
    asio::post(question->waiting->get_executor(), [question] {
        const Lock again(question->mutex);
        if (question->waiting != nullptr) question->waiting->cancel();
    });
}

}  // namespace

awaitable<Result<Addresses>> async_resolve(Endpoint endpoint, TimePoint deadline, LookUp look_up) {
    if (auto numeric = numeric_address(endpoint)) co_return numeric;

    const auto question = std::make_shared<Question>();
    asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
    const Waiting waiting(question, timer);
    const Result<void> asked = look_up_detached(
        endpoint, std::move(look_up), [question](Result<Addresses> found) { answer(question, std::move(found)); });
    if (!asked) co_return asked.error();
    // The wait ends at the deadline, or when the answer has arrived.
    (void)co_await timer.async_wait(transport::kTuple);
    std::optional<Result<Addresses>> found;
    {
        const Lock lock(question->mutex);
        found = std::move(question->answer);
    }
    if (found) co_return std::move(*found);
    co_return Error{Errc::kTimeout, fmt::format("no name server has answered for '{}'", endpoint.host)};
}

}  // namespace ddprun::client

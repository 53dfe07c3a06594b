#include "agent/daemon_link.hpp"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <utility>

#include "agent/output/text.hpp"
#include "common/overloaded.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;
using namespace coordinator;
using std::chrono::milliseconds;

constexpr milliseconds kDialEvery{200};  // at most, also when each new connection ends at once
constexpr milliseconds kGoodbye{2000};   // a daemon that does not answer must not keep a finished node

/// What other nodes had a part in (host names, messages), fit for a terminal.
std::string words_of(const std::string& reason) { return printable(reason, reason.size()); }

/// A coroutine that throws is a bug of ours: let it end the program instead of a silent part of it.
void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace

DaemonLink::DaemonLink(asio::io_context& io, Endpoint endpoint, Join join, milliseconds connect_timeout,
                       Callbacks callbacks)
    : io_(io),
      endpoint_(std::move(endpoint)),
      join_(std::move(join)),
      callbacks_(std::move(callbacks)),
      heartbeat_interval_(Welcome{}.heartbeat_interval),
      lost_after_(connect_timeout),
      timer_(io) {}

void DaemonLink::start() { asio::co_spawn(io_, converse(), rethrow); }

void DaemonLink::send(const AgentMessage& message) {
    if (closed_) return;
    if (!std::holds_alternative<Heartbeat>(message)) reports_.push_back(message);
    if (client_) client_->send(message);
}

bool DaemonLink::tell(const AgentMessage& message) {
    if (closed_ || !client_ || !knows_boards_ || interrupted_) return false;
    client_->send(message);
    return true;
}

asio::awaitable<void> DaemonLink::close() {
    if (std::exchange(closed_, true)) co_return;
    timer_.cancel();
    if (!client_) co_return;
    asio::steady_timer limit(io_, kGoodbye);
    co_await (client_->close() || limit.async_wait(asio::use_awaitable));
}

void DaemonLink::lose(std::string why) {
    DaemonLost lost{std::move(why)};
    if (welcomed_)
        lost.remedy =
            "Look on that host for what ended ddprund, or between for what cut the network; then start the job again";
    if (!closed_) callbacks_.event(std::move(lost));
    closed_ = true;
    timer_.cancel();
}

asio::awaitable<void> DaemonLink::converse() {
    std::string broken;  // why the last connection ended
    for (TimePoint deadline = Clock::now() + lost_after_; !closed_; deadline = heard_ + lost_after_) {
        const TimePoint dialed_at = Clock::now();
        auto connected = co_await client::ControlClient::connect(endpoint_, deadline);
        if (closed_) co_return;
        if (!connected) {
            lose(broken.empty() ? connected.error().message : broken + ", and it could not be reached again");
            co_return;
        }
        const bool first = broken.empty();
        client_ = std::move(*connected);
        introduce();
        if (first) asio::co_spawn(io_, keep_alive(), rethrow);
        const std::string why = co_await listen();
        if (closed_) co_return;  // and somebody may be waiting for the goodbye of this client
        client_.reset();
        broken = "lost " + why;
        if (!may_connect_again()) break;
        const bool refused = std::exchange(refused_for_now_, false);
        if (!refused && !std::exchange(interrupted_, true))
            callbacks_.notice(fmt::format("{}; connecting again", broken));
        asio::steady_timer pause(io_, dialed_at + kDialEvery);
        co_await pause.async_wait(asio::use_awaitable);
    }
    lose(std::move(broken));
}

/// The first words of a connection; of a later one with all that the daemon may have missed, in its order. It ignores
/// what it has heard before.
void DaemonLink::introduce() {
    const AgentMessage join = join_;
    client_->send(join);
    for (const AgentMessage& report : reports_) client_->send(report);
    if (!welcomed_) heard_ = Clock::now();
}

asio::awaitable<std::string> DaemonLink::listen() {
    while (!closed_) {
        auto received = co_await client_->receive();
        if (!received) co_return received.error().message;
        heard_ = Clock::now();
        take(std::move(*received));
    }
    co_return "";
}

asio::awaitable<void> DaemonLink::keep_alive() {
    while (!closed_) {
        const TimePoint due = Clock::now() + heartbeat_interval_;
        timer_.expires_at(due);
        co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
        if (closed_) co_return;
        const TimePoint now = Clock::now();
        // If we were stopped or starved ourselves, what the daemon said meanwhile still waits in the socket.
        if (now - due > heartbeat_interval_) heard_ = now;
        if (client_ && now - heard_ > lost_after_) {  // between two connections converse() keeps the time
            lose(fmt::format("the rendezvous daemon at {} has said nothing for {} s", to_string(endpoint_),
                             std::chrono::duration<double>(lost_after_).count()));
            co_return;
        }
        const AgentMessage heartbeat = Heartbeat{};
        send(heartbeat);
    }
}

void DaemonLink::forget_reports_before(Generation generation) {
    std::erase_if(reports_, [generation](const AgentMessage& report) {
        return std::visit(
            [generation](const auto& message) {
                if constexpr (requires { message.generation; }) return message.generation < generation;
                return false;
            },
            report);
    });
}

void DaemonLink::take(DaemonMessage message) {
    std::visit(Overloaded{
                   [this](const Welcome& welcome) {
                       heartbeat_interval_ = welcome.heartbeat_interval;
                       lost_after_ = welcome.lost_after;
                       timer_.cancel();  // the first heartbeat may be due earlier than we thought
                       welcomed_ = true;
                       knows_boards_ = welcome.boards;
                       if (!welcome.session.empty()) join_.session = welcome.session;
                       if (std::exchange(interrupted_, false))
                           callbacks_.notice("connected to the rendezvous daemon again");
                       callbacks_.welcomed(welcome);
                   },
                   [](const Heartbeat&) {},
                   [this](const Waiting& waiting) {
                       Waiting clean = waiting;
                       clean.reason = words_of(waiting.reason);
                       callbacks_.waiting(clean);
                   },
                   [this](const Assignment& assignment) {
                       forget_reports_before(assignment.generation);
                       callbacks_.event(Assigned{assignment});
                   },
                   [this](const Abort& abort) {
                       callbacks_.event(AbortReceived{abort.generation, words_of(abort.reason)});
                   },
                   [this](const Finished& finished) {
                       over_ = true;
                       callbacks_.event(JobFinished{finished.verdict});
                   },
                   [this](const ShowBoards& wish) { callbacks_.show_boards(wish); },
                   [this](const Notice& notice) {
                       callbacks_.job_notice({notice.generation, words_of(notice.text)});
                   },
                   [](const ShownBoard&) {},  // those are for ddpctl
                   [](const Inspected&) {},
                   [this](const Rejected& rejected) {
                       refused_for_now_ = rejected.try_again && welcomed_;
                       if (refused_for_now_) return;
                       over_ = true;
                       callbacks_.event(DaemonLost{
                           fmt::format("the rendezvous daemon at {} does not take this node{}: {}",
                                       to_string(endpoint_), welcomed_ ? " again" : "", words_of(rejected.reason)),
                           welcomed_ ? exit_code::kInfrastructure : exit_code::kUsage});
                   },
               },
               message);
}

}  // namespace ddprun::agent

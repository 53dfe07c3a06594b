#include "agent/daemon_link.hpp"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <utility>

#include "common/overloaded.hpp"
#include "common/text/number.hpp"
#include "common/text/utf8.hpp"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;
using namespace protocol;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kDialInterval{200};   // at least, also when each new connection ends at once
constexpr milliseconds kCloseTimeout{2000};  // a daemon that does not answer must not hold up a finished node

/// Ends the program when a coroutine throws: that is a bug, and must not end a part of the program silently.
void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace

DaemonLink::DaemonLink(asio::io_context& io, AgentConfig& config, Join join, EventQueue& events)
    : io_(io),
      endpoint_(config.endpoint),
      join_(std::move(join)),
      events_(events),
      connect_timeout_(config.connect_timeout),
      liveness_(config.connect_timeout),
      heartbeat_timer_(io),
      standby_(std::move(config.standby)) {}

void DaemonLink::start() { asio::co_spawn(io_, converse(), rethrow); }

void DaemonLink::send(const AgentMessage& message) {
    if (closed_) return;
    if (!std::holds_alternative<Heartbeat>(message)) reports_.push_back(message);
    if (client_) client_->send(message);
}

bool DaemonLink::try_send(const AgentMessage& message) {
    if (closed_ || !client_ || !daemon_knows_records_ || interrupted_) return false;
    client_->send(message);
    return true;
}

void DaemonLink::drop() {
    closed_ = true;
    heartbeat_timer_.cancel();
    client_.reset();
}

asio::awaitable<void> DaemonLink::close() {
    if (std::exchange(closed_, true)) co_return;
    heartbeat_timer_.cancel();
    if (!client_) co_return;
    asio::steady_timer limit(io_, kCloseTimeout);
    co_await (client_->close() || limit.async_wait(asio::use_awaitable));
}

void DaemonLink::lose(std::string why) {
    DaemonLost lost{std::move(why)};
    if (welcomed_)
        lost.remedy =
            "Find out what ended ddprund on that host, or what interrupted the network; then start the job again";
    if (!welcomed_ && !rejection_.empty()) {
        if (lost.why.ends_with('.')) lost.why.pop_back();
        lost.why =
            fmt::format("{}. Before that, the daemon of another job rejected this node: {}", lost.why, rejection_);
        lost.remedy = "Start the command again when that job has ended";
    }
    if (!closed_) events_.push(std::move(lost));
    closed_ = true;
    heartbeat_timer_.cancel();
}

asio::awaitable<void> DaemonLink::converse() {
    std::string broken;  // why the last connection ended
    begun_ = Clock::now();
    while (!closed_) {
        const TimePoint deadline = welcomed_ ? liveness_.deadline() : dial_until();
        const TimePoint dialed_at = Clock::now();
        auto connected = co_await client::ControlClient::connect(endpoint_, deadline);
        if (closed_) co_return;
        if (!connected) {
            lose(welcomed_ ? broken + ", and it could not be reached again" : connected.error().message);
            co_return;
        }
        const bool first = broken.empty();
        client_ = std::move(*connected);
        introduce();
        if (first) asio::co_spawn(io_, keep_alive(), rethrow);
        const std::string why = co_await listen();
        if (closed_) co_return;  // close() may still use the client
        client_.reset();
        broken = "lost " + why;
        if (!may_connect_again()) break;
        const bool rejected = std::exchange(rejected_for_now_, false);
        if (!rejected && !std::exchange(interrupted_, true))
            events_.push(ConnectionChanged{fmt::format("{}; connecting again", broken)});
        asio::steady_timer pause(io_, dialed_at + kDialInterval);
        co_await pause.async_wait(asio::use_awaitable);
    }
    if (!over_) lose(std::move(broken));
}

/// Sends Join, and every report that the daemon may have missed on an earlier connection, in order. The daemon ignores
/// those that it has.
void DaemonLink::introduce() {
    const AgentMessage join = join_;
    client_->send(join);
    for (const AgentMessage& report : reports_) client_->send(report);
    if (!welcomed_) liveness_.heard_at(Clock::now());
}

asio::awaitable<std::string> DaemonLink::listen() {
    while (!closed_) {
        auto received = co_await client_->receive();
        if (!received) co_return received.error().message;
        if (closed_) break;
        liveness_.heard_at(Clock::now());
        handle(std::move(*received));
    }
    co_return "";
}

asio::awaitable<void> DaemonLink::keep_alive() {
    while (!closed_) {
        const TimePoint due = Clock::now() + liveness_.heartbeat_interval();
        heartbeat_timer_.expires_at(due);
        co_await heartbeat_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
        if (closed_) co_return;
        const TimePoint now = Clock::now();
        // If this process was stopped or starved, messages that the daemon sent meanwhile still wait in the socket.
        if (now - due > liveness_.heartbeat_interval()) liveness_.heard_at(now);
        if (client_ && now > liveness_.deadline()) {  // between two connections converse() keeps the time
            lose(fmt::format("the rendezvous daemon at {} has sent nothing for {}", to_string(endpoint_),
                             seconds_text(liveness_.lost_after())));
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

void DaemonLink::accept(const Welcome& welcome) {
    liveness_.agree(welcome);
    heartbeat_timer_.cancel();  // the first heartbeat may be due earlier than keep_alive() has assumed
    const bool again = std::exchange(welcomed_, true);
    standby_.reset();  // this daemon is that of the job
    daemon_knows_records_ = welcome.records;
    if (!welcome.session.empty()) join_.session = welcome.session;
    if (std::exchange(interrupted_, false))
        events_.push(
            ConnectionChanged{fmt::format("connected to the rendezvous daemon{}", again ? " again" : ""), true});
    events_.push(Welcomed{welcome.run_id, welcome.node_name, welcome.session});
}

/// Reports that the daemon does not take this node now. converse() tries again.
void DaemonLink::reject_for_now(const Rejected& rejected) {
    if (std::exchange(rejection_, printable(rejected.reason)) == printable(rejected.reason)) return;
    interrupted_ = true;
    events_.push(ConnectionChanged{
        give_up_at_ ? fmt::format("the rendezvous daemon at {} rejects this node, which tries again for {} in case a "
                                  "node of that job is lost: {}",
                                  to_string(endpoint_), seconds_text(rejected.try_for), rejection_)
                    : fmt::format("the rendezvous daemon at {} rejects this node: {}; trying again",
                                  to_string(endpoint_), rejection_)});
}

void DaemonLink::reject(const Rejected& rejected) {
    rejected_for_now_ = rejected.try_again && welcomed_;
    if (rejected_for_now_) return;
    const bool is_limited = rejected.try_again && rejected.try_for > 0ms;
    if (is_limited && !give_up_at_) {
        give_up_at_ = Clock::now() + rejected.try_for;
        standby_.reset();  // this node may replace a lost one, and does not begin a job of its own
    }
    const bool in_vain = is_limited && Clock::now() >= *give_up_at_;
    if (rejected.try_again && !in_vain) return reject_for_now(rejected);
    over_ = true;
    events_.push(DaemonLost{fmt::format("the rendezvous daemon at {} rejects this node{}: {}", to_string(endpoint_),
                                        welcomed_ ? " again" : "", printable(rejected.reason)),
                            welcomed_ ? exit_code::kInfrastructure : exit_code::kUsage});
}

void DaemonLink::handle(DaemonMessage message) {
    std::visit(
        Overloaded{
            [this](const Welcome& welcome) { accept(welcome); },
            [](const Heartbeat&) {},
            [this](const Waiting& waiting) { events_.push(WaitReceived{printable(waiting.reason)}); },
            [this](const Assignment& assignment) { events_.push(Assigned{assignment}); },
            [this](const Abort& abort) {
                events_.push(AbortReceived{abort.generation, printable(abort.reason), abort.signal, abort.failed});
            },
            [this](const Finished& finished) {
                over_ = true;
                events_.push(JobFinished{finished.verdict});
            },
            [this](const RequestRecords& request) { events_.push(RecordsRequested{request}); },
            [this](const Notify& notify) {
                events_.push(NotifyReceived{notify.generation, notify.signal, notify.number, notify.ago});
            },
            [this](const Notice& notice) {
                events_.push(NoticeReceived{{notice.generation, printable(notice.text)}});
            },
            [](const RecordReply&) {},  // these two are for ddpctl
            [](const Inspected&) {},
            [this](const Rejected& rejected) { reject(rejected); },
        },
        message);
}

}  // namespace ddprun::agent

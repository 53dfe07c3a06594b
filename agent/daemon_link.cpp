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

constexpr milliseconds kDialInterval{100};  // at least, also when each new connection ends at once
/// Of a daemon that this node has reached before: others wait for this node, and a healed network is to be found soon.
constexpr client::Pace kDialAgain{
    .max_pause = kDialInterval, .try_time = 1500ms, .first_try_time = 100ms, .reports = false};
constexpr milliseconds kWelcomeTimeout{2000};  // then the network has taken the Join, or the daemon stands still
constexpr milliseconds kCloseTimeout{2000};    // a daemon that does not answer must not hold up a finished node

/// Ends the program when a coroutine throws: that is a bug, and must not end a part of the program silently.
void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace

DaemonLink::DaemonLink(asio::io_context& io, AgentConfig& config, Join join, EventQueue& events)
    : io_(io),
      endpoint_(config.endpoint),
      security_(config.security),
      join_(std::move(join)),
      events_(events),
      connect_timeout_(config.connect_timeout),
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
    begun_ = Clock::now();
    while (!closed_) {
        const TimePoint dialed_at = Clock::now();
        auto connected = co_await connect();
        if (closed_) co_return;
        if (!connected) {
            lose(welcomed_ ? after_welcome(connected.error()) : connected.error().message);
            co_return;
        }
        const bool first = broken_.empty();
        client_ = std::move(*connected);
        introduce();
        if (first) asio::co_spawn(io_, keep_alive(), rethrow);
        const std::string why = co_await listen();
        if (closed_) co_return;  // close() may still use the client
        client_.reset();
        welcome_due_.reset();
        lease_.connection_ended(Clock::now());
        heartbeat_timer_.cancel();
        fell_silent_ = !silence_.empty();
        broken_ = silence_.empty() ? "lost " + why : std::exchange(silence_, "");
        if (!may_connect_again()) break;
        if (!std::exchange(interrupted_, true))
            events_.push(ConnectionChanged{fmt::format("{}; connecting again", broken_)});
        asio::steady_timer pause(io_, dialed_at + kDialInterval);
        co_await pause.async_wait(asio::use_awaitable);
    }
    if (!over_) lose(broken_);
}

/// Returns why the daemon that this node had is out of reach, with the error if a server has answered.
std::string DaemonLink::after_welcome(const Error& error) const {
    const std::string text = unreached();
    const bool is_silent = error.code == Errc::kUnreachable || error.code == Errc::kTimeout;
    if (is_silent) return text;
    const std::string why = fmt::format("{}: {}", text, error.message);
    return why.ends_with('.') ? why.substr(0, why.size() - 1) : why;
}

/// Sends Join, and every report that the daemon may have missed on an earlier connection, in order. The daemon ignores
/// those that it has.
void DaemonLink::introduce() {
    const AgentMessage join = join_;
    const TimePoint now = Clock::now();
    lease_.join_sent(now);
    if (welcomed_) welcome_due_ = std::min(now + kWelcomeTimeout, now + lease_.length());
    heartbeat_timer_.cancel();
    client_->send(join);
    for (const AgentMessage& report : reports_) client_->send(report);
}

/// Before the first Welcome, waits for a daemon that may not have begun. Later, for one that may not be back in time.
asio::awaitable<Result<std::unique_ptr<client::ControlClient>>> DaemonLink::connect() {
    if (!welcomed_) return client::ControlClient::connect(endpoint_, dial_until(), {}, security_);
    client::Pace pace = kDialAgain;
    pace.refused_until = lease_.ended_for_good_at();
    return client::ControlClient::connect(endpoint_, lease_.given_up_at(), pace, security_);
}

asio::awaitable<std::string> DaemonLink::listen() {
    while (!closed_) {
        auto received = co_await client_->receive();
        if (!received) co_return received.error().message;
        if (closed_) break;
        handle(std::move(*received));
    }
    co_return "";
}

/// Returns when keep_alive() has something to do.
TimePoint DaemonLink::next_check(TimePoint heartbeat_due) const {
    if (!welcomed_) return std::max(dial_until(), Clock::now() + lease_.heartbeat_interval());
    TimePoint next = heartbeat_due;
    if (!over_) {
        const TimePoint next_end = !lease_ended_  ? lease_.ends()
                                   : !hold_ended_ ? lease_.held_until()
                                                  : lease_.given_up_at();
        next = std::min(next, next_end);
    }
    return welcome_due_ ? std::min(next, *welcome_due_) : next;
}

asio::awaitable<void> DaemonLink::keep_alive() {
    TimePoint heartbeat_due = Clock::now();
    while (!closed_) {
        const TimePoint due = next_check(heartbeat_due);
        heartbeat_timer_.expires_at(due);
        co_await heartbeat_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
        if (closed_) co_return;
        const TimePoint now = Clock::now();
        if (now - due > lease_.heartbeat_interval()) lease_.stood_still(now);
        if (!welcomed_) {
            if (!client_ || now < dial_until()) continue;  // between two connections converse() keeps the time
            co_return lose(fmt::format("the rendezvous daemon at {} has sent nothing for {}", to_string(endpoint_),
                                       seconds_text(connect_timeout_)));
        }
        if (!over_ && !lease_ended_ && now >= lease_.ends()) end_lease();
        if (!over_ && !hold_ended_ && now >= lease_.held_until()) end_hold();
        if (!over_ && now >= lease_.given_up_at()) co_return lose(unreached());
        if (welcome_due_ && now >= *welcome_due_) drop_silent();
        if (now < heartbeat_due) continue;
        heartbeat_due = now + lease_.heartbeat_interval();
        if (!client_) continue;
        const AgentMessage heartbeat = lease_.next_heartbeat(now);
        send(heartbeat);
    }
}

/// Stops the workers until the daemon is reached again.
void DaemonLink::end_lease() {
    lease_ended_ = true;
    if (client_) drop_silent();
    const std::string why =
        silence_.empty() ? fmt::format("the rendezvous daemon at {} is not connected", to_string(endpoint_)) : silence_;
    events_.push(LeaseEnded{why, lease_.held_until()});
}

/// Ends the workers: the daemon has not been reached for as long as they wait for it.
void DaemonLink::end_hold() {
    hold_ended_ = true;
    events_.push(HoldEnded{unreached(), lease_.given_up_at()});
}

/// Returns that the daemon, which this node had, was not reached again.
std::string DaemonLink::unreached() const {
    return (fell_silent_ || !silence_.empty() ? silence() : broken_) + ", and it could not be reached again";
}

std::string DaemonLink::silence() const {
    return fmt::format("the rendezvous daemon at {} has confirmed nothing for {}", to_string(endpoint_),
                       rounded_seconds_text(Clock::now() - lease_.confirmed_at()));
}

/// Drops the connection, which confirms nothing any more; converse() makes another one.
void DaemonLink::drop_silent() {
    welcome_due_.reset();
    if (!client_) return;
    silence_ = silence();
    client_->reset();
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
    lease_.welcomed(welcome);
    if (welcomed_ && Clock::now() >= lease_.ends()) {  // it has waited in the socket while this process stood still
        if (!std::exchange(lease_ended_, true)) return end_lease();
        return drop_silent();
    }
    lease_ended_ = hold_ended_ = false;
    welcome_due_.reset();
    heartbeat_timer_.cancel();  // keep_alive() has other times from now on
    const bool again = std::exchange(welcomed_, true);
    standby_.reset();  // this daemon is that of the job
    daemon_knows_records_ = welcome.records;
    if (!welcome.session.empty()) join_.session = welcome.session;
    if (std::exchange(interrupted_, false))
        events_.push(
            ConnectionChanged{fmt::format("connected to the rendezvous daemon{}", again ? " again" : ""), true});
    events_.push(Welcomed{welcome.run_id, welcome.node_name, welcome.session, welcome.lost});
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
    const bool is_limited = rejected.try_again && rejected.try_for > 0ms;
    if (is_limited && !give_up_at_) {
        give_up_at_ = Clock::now() + rejected.try_for;
        standby_.reset();  // this node may replace a lost one, and does not begin a job of its own
    }
    const bool in_vain = is_limited && Clock::now() >= *give_up_at_;
    if (rejected.try_again && !welcomed_ && !in_vain) return reject_for_now(rejected);
    over_ = true;
    events_.push(DaemonLost{fmt::format("the rendezvous daemon at {} rejects this node{}: {}", to_string(endpoint_),
                                        welcomed_ ? " again" : "", printable(rejected.reason)),
                            welcomed_ ? exit_code::kInfrastructure : exit_code::kUsage});
}

void DaemonLink::handle(DaemonMessage message) {
    std::visit(
        Overloaded{
            [this](const Welcome& welcome) { accept(welcome); },
            [this](const Heartbeat& heartbeat) { lease_.heard(heartbeat); },
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
            [](const Answer&) {},
            [](const Status&) {},
            [this](const Rejected& rejected) { reject(rejected); },
        },
        message);
}

}  // namespace ddprun::agent

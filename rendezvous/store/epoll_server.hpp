#pragma once
// EpollServer: one TCPStore on one listening port, on an epoll set of its own: one recv and one send for a request. It
// only moves bytes; what they mean is in codec.hpp and engine.hpp. One thread. docs/design/006-store-server.md says
// why.

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/store/connections.hpp"
#include "rendezvous/store/engine.hpp"
#include "rendezvous/store/limits.hpp"
#include "rendezvous/store/listener.hpp"
#include "rendezvous/store/log_limit.hpp"
#include "rendezvous/store/statistics.hpp"

namespace ddprun::store {

class EpollServer {
public:
    using Now = std::function<TimePoint()>;

    /// Listens on the numeric `address` and on nothing else. Errors: kInUse or kSystem with the address.
    [[nodiscard]] static Result<std::unique_ptr<EpollServer>> listen(const std::string& address, std::uint16_t port,
                                                                     const Options& options, Now now = &Clock::now);
    EpollServer(Listener listener, UniqueFd epoll, const Options& options, Now now);
    ~EpollServer();
    EpollServer(const EpollServer&) = delete;
    EpollServer& operator=(const EpollServer&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Becomes readable when there is something to serve.
    [[nodiscard]] int poll_fd() const { return epoll_.get(); }
    /// Waits up to `patience` for something to do (negative: for ever) and gives everybody who has something one turn.
    /// How many those were: if nobody, poll_fd() says when there is somebody.
    std::size_t serve(std::chrono::nanoseconds patience) { return serve(patience, nullptr); }
    /// Whether somebody is to be served on although poll_fd() may say nothing.
    [[nodiscard]] bool more() const { return !ready_.empty(); }
    /// Serves without returning in between, which costs least. Signals are handled only while it waits; then it asks
    /// `go_on` whether to. They are blocked meanwhile.
    void serve_until_signal(const std::function<bool()>& go_on);
    /// When do_what_is_due() is to be called, unless serve() is, which does it as well.
    [[nodiscard]] std::optional<TimePoint> deadline() const;
    /// Serves nobody.
    void do_what_is_due();
    /// Ends the listener and all connections.
    void close();
    [[nodiscard]] Statistics statistics() const;

private:
    enum class Accepting { kYes, kAtLimit, kFailing, kClosed };

    /// `signals`: those that are blocked while it waits; null: as always.
    std::size_t serve(std::chrono::nanoseconds patience, const sigset_t* signals);
    [[nodiscard]] std::size_t wait(std::chrono::nanoseconds patience, const sigset_t* signals);
    void turn(Connection& connection, std::uint32_t events);
    void receive(Connection& connection);
    void serve_requests(Connection& connection);
    /// Answers all further parts of every MULTI_GET that has begun.
    void finish_reading();
    void finish_reading(Connection& connection);
    void set_reading(Connection& connection, bool reading);
    /// Sends what the kernel takes now, up to a turn's worth. False: the connection is over.
    [[nodiscard]] bool send(Connection& connection, Reply& reply);
    /// Those whose wait the last request ended.
    void tell_released();
    void stop_waiting(Connection& connection);
    void wait_for(Connection& connection, bool room_to_send);
    void keep_account(Connection& connection);
    [[nodiscard]] std::size_t turn_bytes() const;
    [[nodiscard]] std::size_t buffer_bytes() const;
    void refuse(Connection& connection, std::string_view why);
    void end(Connection& connection);

    void accept();
    void admit(Listener::Accepted accepted);
    void cannot_accept(int error);
    void listen_for(Accepting state);
    void end_stalled(TimePoint now);
    void watch_spare();
    /// How often that is looked after: a connection may stay a little longer than its limit.
    [[nodiscard]] Duration looking_period() const;
    /// Logs what `line` makes, unless there were many just now, or there is no memory for it.
    template <typename Line>
    void warn(Line line);

    Options options_;
    Now now_;
    std::optional<Listener> listener_;
    std::uint16_t port_;
    std::string name_;  ///< "10.0.0.7:41234", for the log
    UniqueFd epoll_;
    std::array<epoll_event, 128> events_;
    std::vector<char> scratch_;  ///< where each read lands first: an idle connection needs no memory to read into

    BlockMemory block_memory_;  ///< of all blocks, wherever they are
    Reply reply_;               ///< of the connection whose turn it is
    Engine engine_;
    Connections connections_;
    std::vector<ConnectionId> ready_;  ///< those with more to serve that has been received already
    std::size_t turns_alone_ = 0;      ///< in a row, in which nobody else was ready
    std::size_t held_bytes_ = 0;       ///< by all connections
    std::size_t inside_ = 0;           ///< connections that wait for the rest of a request
    std::size_t reading_ = 0;          ///< connections in the middle of a MULTI_GET

    Accepting accepting_ = Accepting::kYes;
    std::uint64_t spare_seen_ = 0;  ///< its times_kept()
    TimePoint drop_spare_at_;
    bool interrupted_ = false;    ///< the last wait was, by a signal
    bool accept_failed_ = false;  ///< since the last one that did not
    TimePoint accept_again_at_;
    TimePoint look_for_stalled_at_;
    LogLimit log_limit_;
    Statistics statistics_;
};

}  // namespace ddprun::store

#pragma once
// RequestService: serves the connections of one store in slices: receives, applies the requests to the engine, sends
// the replies, and closes connections that break a rule. It also notifies the connections whose WAIT or BARRIER
// another request has ended. A part of EpollServer, on its thread.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "rendezvous/store/engine/engine.hpp"
#include "rendezvous/store/server/admission.hpp"
#include "rendezvous/store/server/server_context.hpp"

namespace ddprun::store {

class RequestService {
public:
    /// Both outlive this.
    RequestService(ServerContext& context, Admission& admission);

    /// Returns whether requests that have been received already wait for their connection's next slice.
    [[nodiscard]] bool has_ready() const { return !ready_.empty(); }
    /// Begins a round in which `events` connections are served by serve(). Returns how many more are ready now, for
    /// serve_ready(): a connection that has more after its slice queues up behind the others.
    std::size_t begin_round(std::size_t events);
    /// Serves one slice of a connection. `events`: those of epoll; 0 in a call by serve_ready().
    void serve(Connection& connection, std::uint32_t events);
    /// Serves one slice of each of the first `count` ready connections.
    void serve_ready(std::size_t count);

    /// Returns the time of the next end_stalled(); empty if no connection is in the middle of a request.
    [[nodiscard]] std::optional<TimePoint> deadline() const;
    /// Closes the connections that have sent a part of a request and then nothing for too long.
    void end_stalled(TimePoint now);
    void end_all();

    [[nodiscard]] const Engine& engine() const { return engine_; }
    /// Returns the bytes that Limits::buffer_bytes bounds.
    [[nodiscard]] std::size_t buffer_bytes() const;

private:
    void receive(Connection& connection);
    void serve_requests(Connection& connection);
    /// Answers all further parts of every MULTI_GET that has begun.
    void finish_multi_gets();
    void finish_multi_get(Connection& connection);
    /// Sends as much as the kernel takes now, up to a slice's worth. Returns false if the connection has ended.
    [[nodiscard]] bool send(Connection& connection, Reply& reply);
    /// Sends kStopWaiting to the connections whose WAIT or BARRIER the last request has ended.
    void notify_released();
    void stop_waiting(Connection& connection);
    void wait_for(Connection& connection, bool room_to_send);
    void update_totals(Connection& connection);
    [[nodiscard]] std::size_t slice_bytes() const;
    /// Returns the period of end_stalled(). A connection may stay that much longer than its limit.
    [[nodiscard]] Duration stall_check_period() const;
    void refuse(Connection& connection, std::string_view why);
    void end(Connection& connection);

    ServerContext& context_;
    Admission& admission_;
    std::vector<char> scratch_;  ///< where each read lands first: an idle connection needs no memory to read into
    Reply reply_;                ///< of the connection that is being served
    Engine engine_;
    std::vector<ConnectionId> ready_;  ///< connections with more to serve that has been received already
    std::size_t lone_slices_ = 0;      ///< in a row, in which no other connection was ready
    TimePoint check_stalled_at_;
};

}  // namespace ddprun::store

#pragma once
// BoardDesk: what a node says about the boards of its workers. Every second it looks for a worker that is stuck, and it
// shows the boards to the daemon when that asks. One thread.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/board/stall_watch.hpp"
#include "agent/worker_processes.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::agent {

/// The workers that there are now.
struct BoardsHere {
    const coordinator::Assignment* assignment = nullptr;  ///< null: there are none
    const WorkerProcesses* workers = nullptr;
    std::set<LocalRank> running;  ///< of which a stall would be one
    std::string host;
    int slots = 0;
};

class BoardDesk {
public:
    using Look = std::function<BoardsHere()>;
    /// False: nobody hears it now.
    using Tell = std::function<bool(const coordinator::AgentMessage&)>;

    /// `warning`: so long a worker may be in one operation; 0: until its own deadline.
    BoardDesk(boost::asio::io_context& io, std::chrono::milliseconds warning, Look look, Tell tell);

    /// Looks for stalls and passed deadlines from now on, until stop().
    void start();
    void stop() { timer_.cancel(); }
    /// Another worker group begins.
    void reset() {
        stalls_.reset();
        stopped_since_.clear();
    }
    /// That worker has ended: says so if it failed by a deadline, for its peers' boards still show who kept it waiting.
    void look_at_end_of(LocalRank rank);

    /// One board after the other, each when the agent has nothing else to do.
    void show(const coordinator::ShowBoards& wish);

private:
    void look_for_stalls();
    void look_at(const BoardsHere& here, LocalRank rank, bool only_timeouts);
    void show_from(const coordinator::ShowBoards& wish, LocalRank rank);
    void show(const BoardsHere& here, const coordinator::ShowBoards& wish, LocalRank rank, bool last);
    /// For how long that worker has been seen to be in that state, if it is "stopped".
    std::optional<Duration> stopped_for(LocalRank rank, const std::string& process);

    StallWatch stalls_;
    std::map<LocalRank, TimePoint> stopped_since_;
    boost::asio::steady_timer timer_;
    Look look_;
    Tell tell_;
};

}  // namespace ddprun::agent

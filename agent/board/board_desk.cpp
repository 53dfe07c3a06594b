#include "agent/board/board_desk.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "agent/environment.hpp"

namespace ddprun::agent {

BoardDesk::BoardDesk(boost::asio::io_context& io, std::chrono::milliseconds warning, Look look, Tell tell)
    : stalls_(warning), timer_(io), look_(std::move(look)), tell_(std::move(tell)) {}

void BoardDesk::start() {
    timer_.expires_after(stalls_.interval());
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (error) return;  // stopped
        look_for_stalls();
        start();
    });
}

void BoardDesk::look_for_stalls() {
    const BoardsHere here = look_();
    if (here.assignment == nullptr) return;
    for (const LocalRank rank : here.running) {
        look_at(here, rank, false);
        (void)stopped_for(rank, here.workers->process(rank));  // the kernel does not tell since when
    }
}

std::optional<Duration> BoardDesk::stopped_for(LocalRank rank, const std::string& process) {
    if (process != "stopped") {
        stopped_since_.erase(rank);
        return std::nullopt;
    }
    const TimePoint now = Clock::now();
    return now - stopped_since_.try_emplace(rank, now).first->second;
}

void BoardDesk::look_at_end_of(LocalRank rank) {
    const BoardsHere here = look_();
    if (here.assignment != nullptr) look_at(here, rank, true);
}

void BoardDesk::look_at(const BoardsHere& here, LocalRank rank, bool only_timeouts) {
    const Rank of_job = rank_of(*here.assignment, rank);
    const coordinator::BoardView view = here.workers->board(rank, 0);
    auto stall = stalls_.look(of_job, view);
    if (!stall || (only_timeouts && !stall->timed_out)) return;
    stall->generation = here.assignment->generation;
    if (tell_(*stall)) stalls_.told(of_job, view);  // else once more when the daemon can be reached
}

void BoardDesk::show(const coordinator::ShowBoards& wish) {
    const BoardsHere here = look_();
    if (here.assignment == nullptr || wish.generation != here.assignment->generation) return;
    if (wish.rank) {
        const int local = number(*wish.rank) - here.assignment->rank_base;
        if (local >= 0 && local < here.slots) show(here, wish, LocalRank{local}, true);
        return;
    }
    coordinator::ShowBoards all = wish;
    all.operations = std::min(all.operations, coordinator::kOperationsShownOfAll);
    show_from(all, LocalRank{0});
}

void BoardDesk::show_from(const coordinator::ShowBoards& wish, LocalRank rank) {
    const BoardsHere here = look_();
    if (here.assignment == nullptr || wish.generation != here.assignment->generation || number(rank) >= here.slots)
        return;
    const LocalRank next{number(rank) + 1};
    show(here, wish, rank, number(next) == here.slots);
    if (number(next) < here.slots)
        boost::asio::post(timer_.get_executor(), [this, wish, next] { show_from(wish, next); });
}

void BoardDesk::show(const BoardsHere& here, const coordinator::ShowBoards& wish, LocalRank rank, bool last) {
    coordinator::ShownBoard shown;
    shown.generation = wish.generation;
    shown.request = wish.request;
    shown.last = last;
    shown.board = here.workers->rank_board(rank, static_cast<std::size_t>(wish.operations));
    shown.board.rank = rank_of(*here.assignment, rank);
    shown.board.host = here.host;
    shown.board.stopped_for = stopped_for(rank, shown.board.process);
    shown.board.wall_clock_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    (void)tell_(std::move(shown));  // who does not hear it has given up waiting
}

}  // namespace ddprun::agent

#include "worker_lib/src/native/p2p.hpp"

#include <poll.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/native/deadlines.hpp"
#include "worker_lib/src/native/quiet_thread.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

namespace {

/// As Waiter spins, for the same reasons; a turn also looks at all peers.
constexpr int kPauses = 20;
constexpr auto kSpinning = std::chrono::milliseconds(2);
/// Where something moves all the time, deadlines are looked after, too.
constexpr unsigned kTurnsBetweenLooks = 4096;
/// A look at a neighbour is a load; one at a connection is a system call.
constexpr unsigned kTurnsBetweenSockets = 8;
constexpr int kNapMs = static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(Waiter::kNap).count());
/// So often the thread looks whether somebody waits, and after so many looks it sleeps longer.
constexpr int kTickMs = 1;
constexpr int kTicksBeforeNap = 50;

constexpr int kLastTurns = 100;

constexpr std::size_t kLoopBytes = std::size_t{128} << 10;

std::string bell_name(const Member& member) { return member.local_name + "-bell"; }

}  // namespace

void P2pWork::help() {
    if (!done()) p2p_->help(*this);
}

void P2pWork::hurry() {
    if (!done()) p2p_->hurry();
}

P2p::P2p(P2pSetup setup)
    : setup_(std::move(setup)),
      bell_name_(bell_name(setup_.members[static_cast<std::size_t>(setup_.rank)])),
      bell_(std::in_place, bell_name_),
      page_(setup_.node.local(setup_.node.own_index()).segment->post_page()),
      pauses_(setup_.node.size() <= usable_cores() ? kPauses : 0),
      owner_{setup_.rank, setup_.arena, {}} {
    if (!setup_.listener) return;
    ready_.emplace();
    door_.emplace(*ready_, setup_.hello, std::move(setup_.listener));
    wake_thread();  // peers may send before we do anything
}

P2p::~P2p() { stop(Error(ErrorCode::Aborted, "the group is gone"), true); }

std::shared_ptr<WorkState> P2p::submit(TransferBatch batch) {
    auto work = std::make_shared<P2pWork>(std::move(batch), shared_from_this());
    {
        const std::lock_guard lock(mutex_);
        submitted_.push_back(work);
        submitted_any_ = true;
    }
    serve_submitted();
    return work;
}

/// Also after the lock was given up: somebody may have submitted meanwhile, and left it to us.
void P2p::serve_submitted() {
    while (submitted_any_.load(std::memory_order_seq_cst)) {
        Running running(running_, std::try_to_lock);
        if (!running) return interrupt();  // whoever is at it may sleep
        while (guarded_pass()) deliver(running);
        deliver(running);
        if (busy()) wake_thread();
    }
}

void P2p::hurry() {
    Running running(running_, std::try_to_lock);
    if (!running) return;
    while (guarded_pass()) deliver(running);
    deliver(running);
}

void P2p::help(const P2pWork& work) {
    if (helped_.exchange(true)) return;
    Running running(running_);
    page_.asleep.store(0, std::memory_order_relaxed);
    auto enough = ddprun::TimePoint::max();
    int idle = 0;
    bool moved = true;
    for (unsigned turn = 1; !stopping_; ++turn) {
        look_at_network_ = moved || turn % kTurnsBetweenSockets == 0;
        moved = guarded_pass();
        look_at_network_ = true;
        deliver(running);
        if (work.done()) break;
        if (turn % kTurnsBetweenLooks == 0) look_around();
        if (moved) {
            idle = 0;
            enough = ddprun::TimePoint::max();
            continue;
        }
        if (idle++ < pauses_) {
            Waiter::pause();
            continue;
        }
        idle = 0;
        const auto now = ddprun::Clock::now();
        if (enough == ddprun::TimePoint::max()) enough = now + kSpinning;
        if (now < enough) {
            running.unlock();  // for those who want to submit
            Waiter::yield();
            running.lock();
            continue;
        }
        settle();
        if (done_.empty() && !failure_) (void)sleep(kNapMs, true);
        page_.asleep.store(0, std::memory_order_relaxed);
        bell_->silence();
        look_around();
    }
    deliver(running);
    helped_ = false;
    if (busy() || ready_) wake_thread();
    running.unlock();
    serve_submitted();
}

/// The thread. While waiters come and go it only looks in now and then, in short naps: so submit() need not say that
/// somebody sleeps, which would have peers wake a thread for what the waiter has taken long before.
void P2p::run() {
    int patience = kTickMs;
    int idle = 0;      // ticks with nothing to do
    int hindered = 0;  // ticks with somebody else at it
    bool failed = false;
    while (!stopping_) {
        const bool rung = sleep(patience, !failed && !helped_);
        Running running(running_, std::try_to_lock);
        if (!running && !rung) {
            patience = ++hindered > kTicksBeforeNap ? kNapMs : kTickMs;
            long_nap_ = patience != kTickMs;  // whoever leaves just now rings in vain, or for this nap
            continue;
        }
        if (!running) running.lock();  // polling on would only find the same ring
        hindered = 0;
        bell_->silence();
        while (guarded_pass()) deliver(running);
        look_around();
        const bool attended = helped_;
        if (!attended) settle();
        failed = failure_.has_value();
        idle = busy() ? 0 : idle + 1;
        patience = idle > kTicksBeforeNap ? -1 : busy() && !attended ? kNapMs : kTickMs;
        long_nap_ = patience != kTickMs;
        deliver(running);
        running.unlock();
        serve_submitted();
    }
}

bool P2p::sleep(int patience_ms, bool with_network) const {
    std::array<pollfd, 2> waiting{{{.fd = bell_->fd(), .events = POLLIN, .revents = 0},
                                   {.fd = ready_ && with_network ? ready_->fd() : -1, .events = POLLIN, .revents = 0}}};
    return ::poll(waiting.data(), waiting.size(), patience_ms) > 0;  // interrupted: a nap cut short
}

bool P2p::pass() {
    bool moved = false;
    if (submitted_any_.load(std::memory_order_acquire)) take_submitted();
    if (busy() && !failure_ && setup_.node.poisoned() && !setup_.node.stopped()) look_around();
    if (failure_) return false;
    if (door_ && look_at_network_) let_in();
    for (P2pPeer* one : peers_) {
        if (!look_at_network_ && is_remote(one->rank())) continue;
        const auto [some, concerned] = one->progress();
        moved = moved || some;
        if (!concerned) continue;
        const auto found = std::ranges::find(neighbours_, one, &LocalPeer::peer);
        if (found != neighbours_.end()) ring(*found);
    }
    collect_finished();
    return moved;
}

void P2p::collect_finished() {
    for (Pending& pending : owner_.finished) {
        if (!pending.work->finish(pending.index)) continue;
        in_flight_.erase(pending.work->seq());
        done_.push_back({std::move(pending.work), nullptr});
    }
    owner_.finished.clear();
}

/// False also when it has failed.
bool P2p::guarded_pass() {
    if (failure_ && !submitted_any_.load(std::memory_order_acquire)) return false;
    try {
        return pass();
    } catch (const Error& error) {
        fail(error, nullptr, true);
    } catch (const std::exception& error) {  // out of memory, most likely
        fail(Error(ErrorCode::System, error.what()), nullptr, true);
    }
    return false;
}

void P2p::take_submitted() {
    std::deque<std::shared_ptr<P2pWork>> taken;
    {
        const std::lock_guard lock(mutex_);
        taken.swap(submitted_);
        submitted_any_ = false;
    }
    for (auto& work : taken) in_flight_.emplace(work->seq(), work);
    if (!failure_) failure_ = setup_.node.failure();
    if (failure_) return fail(*failure_, nullptr, false);
    for (const auto& work : taken) {
        for (std::size_t i = 0; i < work->batch.transfers.size(); ++i) {
            peer(work->batch.transfers[i].peer).post({work, i});
        }
    }
}

P2pPeer& P2p::peer(int rank) {
    auto& slot = by_rank_[rank];
    if (slot) return *slot;
    const auto& local = setup_.topology.local();
    const auto index = std::ranges::find(local, rank) - local.begin();
    if (rank == setup_.rank) {
        slot = connect_self();
    } else if (index < static_cast<std::ptrdiff_t>(local.size())) {
        slot = connect_neighbour(rank, static_cast<int>(index));
    } else {
        slot = connect_remote(rank);
    }
    peers_.push_back(slot.get());
    return *slot;
}

std::unique_ptr<P2pPeer> P2p::connect_self() {
    loop_.resize(kLoopBytes + sizeof(LaneControl) + kSeparation);
    void* begin = loop_.data();
    std::size_t space = loop_.size();
    std::align(kSeparation, kLoopBytes, begin, space);
    auto* const control = new (begin) LaneControl;
    const LaneMemory lane{control, reinterpret_cast<std::byte*>(control + 1), kLoopBytes};
    const PeerMemory memory{.kind = PeerMemory::Kind::kOwn, .heap = nullptr, .heap_bytes = 0};
    return std::make_unique<P2pPeer>(owner_, setup_.rank, memory, std::make_unique<LaneOutlet>(lane),
                                     std::make_unique<LaneInlet>(lane));
}

std::unique_ptr<P2pPeer> P2p::connect_neighbour(int rank, int index) {
    const Node& node = setup_.node;
    const Segment& own = *node.local(node.own_index()).segment;
    const Segment& theirs = *node.local(index).segment;
    const PeerMemory memory{.kind = PeerMemory::Kind::kHeap, .heap = theirs.heap(), .heap_bytes = theirs.heap_bytes()};
    const auto lane = [&](const Segment& from, int to) {
        return lane_at(from.post_area(), kPostBytes, node.size(), to);
    };
    auto made = std::make_unique<P2pPeer>(owner_, rank, memory, std::make_unique<LaneOutlet>(lane(own, index)),
                                          std::make_unique<LaneInlet>(lane(theirs, node.own_index())));
    LocalPeer& neighbour = neighbours_.emplace_back();
    neighbour.peer = made.get();
    neighbour.index = index;
    neighbour.page = &theirs.post_page();
    neighbour.bell = bell_name(setup_.members[static_cast<std::size_t>(rank)]);
    neighbour.since = ddprun::Clock::now();
    return made;
}

std::unique_ptr<P2pPeer> P2p::connect_remote(int rank) {
    const Member& member = setup_.members[static_cast<std::size_t>(rank)];
    auto outlet = std::make_unique<SocketOutlet>(*ready_, setup_.hello, rank, member);
    auto inlet = std::make_unique<SocketInlet>(*ready_);
    RemotePeer& remote = remotes_.emplace_back();
    remote.outlet = outlet.get();
    remote.inlet = inlet.get();
    auto made = std::make_unique<P2pPeer>(owner_, rank, PeerMemory{}, std::move(outlet), std::move(inlet));
    remote.peer = made.get();
    return made;
}

bool P2p::is_remote(int rank) const {
    return std::ranges::any_of(remotes_, [rank](const RemotePeer& one) { return one.peer->rank() == rank; });
}

/// Those who have connected, whether or not we have anything to do with them so far.
void P2p::let_in() {
    door_->look([this](int rank, ddprun::UniqueFd socket) {
        const auto& local = setup_.topology.local();
        const bool known = rank >= 0 && rank < static_cast<int>(setup_.members.size());
        if (!known || std::ranges::find(local, rank) != local.end()) return;
        (void)peer(rank);
        std::ranges::find(remotes_, rank, [](const RemotePeer& one) {
            return one.peer->rank();
        })->inlet->attach(std::move(socket));
    });
}

/// Before we sleep: from now on peers ring when there is something for us.
void P2p::settle() {
    if (!busy()) return;
    page_.asleep.store(1, std::memory_order_seq_cst);
    while (guarded_pass()) {
    }
}

void P2p::ring(const LocalPeer& neighbour) const {
    auto& asleep = neighbour.page->asleep;
    if (asleep.load(std::memory_order_seq_cst) == 0 || asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
    bell_->ring(neighbour.bell);
}

/// Ends works without the lock: their callbacks may send and receive.
void P2p::deliver(Running& running) {
    if (done_.empty()) return;
    std::vector<Done> done;
    done.swap(done_);
    running.unlock();
    for (const Done& one : done) one.work->complete(one.error);
    running.lock();
}

/// It looks in soon: nobody else may.
void P2p::wake_thread() {
    if (stopping_) return;
    if (!thread_.joinable()) {
        thread_ = start_quiet_thread("ddp-p2p", [this] { run(); });
    } else if (long_nap_.exchange(false)) {
        interrupt();
    }
}

void P2p::stop(const Error& goodbye, bool failed) {
    if (stopping_.exchange(true)) return;
    interrupt();
    if (thread_.joinable()) thread_.join();
    Running running(running_);
    for (int i = 0; i < kLastTurns && guarded_pass(); ++i) {  // what peers have to hear may have been out of room
    }
    if (!goodbye_said_) say_goodbye(goodbye, failed);
    fail(setup_.node.failure().value_or(Error(ErrorCode::Aborted, "the group is gone")), nullptr, false);
    take_submitted();
    deliver(running);
    remotes_.clear();
    neighbours_.clear();
    peers_.clear();
    by_rank_.clear();
    door_.reset();
    ready_.reset();
    bell_.reset();
}

}  // namespace ddp::detail

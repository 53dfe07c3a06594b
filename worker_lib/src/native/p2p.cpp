#include "worker_lib/src/native/p2p.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "worker_lib/src/native/quiet_thread.hpp"
#include "worker_lib/src/native/waiter.hpp"

namespace ddp::detail {

namespace {

/// As Waiter spins, for the same reasons; a turn also looks at all peers.
constexpr int kPauses = 20;

}  // namespace

const Participant& P2pWork::owner() const { return p2p_->self(); }

std::string P2pWork::text() const { return describe(batch); }

void P2pWork::start() {
    if (!p2p_->is_elsewhere()) p2p_->start();
}

void P2pWork::help() {
    if (!done() && !p2p_->is_elsewhere()) p2p_->help(*this);
}

void P2pWork::hurry() {
    if (!done() && !p2p_->is_elsewhere()) p2p_->hurry();
}

P2p::P2p(P2pSetup setup)
    : setup_(std::move(setup)),
      self_{setup_.group, name_of(setup_.rank), &setup_.node},
      page_(setup_.node.local(setup_.node.own_index()).segment->post_page()),
      pauses_(setup_.node.crowded() ? 0 : kPauses),
      owner_{setup_.rank, setup_.members, setup_.arena, setup_.node, page_.listening, {}, {}} {
    std::ranges::copy(bell_.name(), page_.bell.begin());
    if (!setup_.listener) return;
    ready_.emplace();
    door_.emplace(*ready_, setup_.hello, setup_.members.size(), std::move(setup_.listener));
    const Running running(running_);
    thread_ = start_quiet_thread("ddp-p2p", [this] { run(); });  // peers may send before we do anything
}

P2p::~P2p() { stop(Error(ErrorCode::Aborted, "the group is gone"), true); }

std::shared_ptr<WorkState> P2p::submit(TransferBatch batch) {
    const std::uint32_t done = std::exchange(at_once_, 0);
    auto work = std::make_shared<P2pWork>(std::move(batch), shared_from_this());
    for (std::size_t i = 0; done >> i != 0; ++i) {
        if ((done >> i & 1U) != 0) (void)work->finish(i);  // not the last one
    }
    const std::lock_guard lock(mutex_);
    submitted_.push_back(work);
    submitted_any_.store(true, std::memory_order_seq_cst);
    return work;
}

/// Also after the lock was given up: somebody may have submitted meanwhile, and left it to us. Who submits says so and
/// then looks at the lock; who gives it up looks behind that whether somebody has: with a fence between the two steps
/// of each, for unlocking is a plain store, at least one sees the other.
void P2p::start() {
    for (;;) {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!submitted_any_.load(std::memory_order_seq_cst)) return;
        Running running(running_, std::try_to_lock);
        if (!running) return interrupt();  // whoever is at it may sleep
        (void)move(running);
        busy() ? hand_over(running) : leave(running);
    }
}

bool P2p::pass() {
    bool moved = false;
    if (submitted_any_.load(std::memory_order_acquire)) take_submitted();
    if (busy() && !failure_ && setup_.node.poisoned() && !setup_.node.stopped()) look_around();
    if (failure_) return false;
    if (door_ && look_at_network_) let_in();
    for (P2pPeer* one : peers_) {
        if (!look_at_network_ && one->is_remote()) continue;
        const auto [some, concerned] = one->progress();
        moved = moved || some;
        if (!concerned) continue;
        const auto found = std::ranges::find(neighbours_, one, &LocalPeer::peer);
        if (found != neighbours_.end()) ring(*found);
    }
    collect_finished();
    if (!owner_.told) return moved;
    setup_.node.relay(*owner_.told, setup_.node.last_done());  // the reporter's name is in it
    fail(*owner_.told, nullptr, true);
    return false;
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
    } catch (...) {
        fail_by_exception();
        return false;
    }
}

/// Inside a handler.
void P2p::fail_by_exception() {
    try {
        throw;
    } catch (const Error& error) {
        fail(error, nullptr, true);
    } catch (const std::exception& error) {  // out of memory, most likely
        fail(Error(ErrorCode::System, error.what()), nullptr, true);
    }
}

void P2p::take_submitted() {
    std::deque<std::shared_ptr<P2pWork>> taken;
    {
        const std::lock_guard lock(mutex_);
        taken.swap(submitted_);
        submitted_any_ = false;
    }
    for (auto& work : taken) in_flight_.emplace(work->seq(), work);
    const auto failure = failure_ ? failure_ : setup_.node.failure();
    if (failure) return fail(*failure, nullptr, false);
    for (const auto& work : taken) {
        for (std::size_t i = 0; i < work->batch.transfers.size(); ++i) {
            if (!work->is_done(i)) peer(work->batch.transfers[i].peer).post({work, i});
        }
    }
}

bool P2p::has_to_send() const {
    return std::ranges::any_of(peers_, [](const P2pPeer* one) { return one->has_to_send(); });
}

bool P2p::owes_word() const {
    return std::ranges::any_of(peers_, [](const P2pPeer* one) { return one->owes_word(); });
}

void P2p::ring(const LocalPeer& neighbour) const {
    fence_before_wake(setup_.node.waiter().waker_fence());
    auto& asleep = neighbour.page->asleep;
    if (asleep.load(std::memory_order_seq_cst) == 0 || asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
    bell_.ring(std::string_view(neighbour.page->bell.data(), neighbour.page->bell.size()));
}

}  // namespace ddp::detail

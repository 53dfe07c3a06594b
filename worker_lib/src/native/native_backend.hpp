#pragma once
// NativeBackend: the queue of one group on CPUs, and those who run it: its progress thread, or a thread that waits for
// a work and finds nobody at it. Whoever holds `running_` runs operations, in their order. submit() and abort() from
// any thread.
//
// Small operations inside a node are opened by open(), and finished by submit() if the peers have come: they need
// nothing more of us, so the progress thread is not woken for them. Only when somebody neither waits nor goes away it
// has to be (hurry()). An all-reduce of up to kAtOnceBytes is carried out by submit() as well, as far as peers come
// within a moment, unless the caller is one that computes meanwhile. For others it is woken only if the caller is not
// likely to wait at once (WakeChoice); while it is left asleep, it looks every now and then whether something has been
// lying about.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/light_mutex.hpp"
#include "worker_lib/src/native/arena.hpp"
#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/links.hpp"
#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/native_work.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/p2p.hpp"
#include "worker_lib/src/native/wake_choice.hpp"
#include "worker_lib/src/native/watch.hpp"

namespace ddp::detail {

/// What meeting all peers has given.
struct Connected {
    Topology topology;
    std::vector<Member> members;       ///< by rank
    std::shared_ptr<Segment> segment;  ///< the own one
    std::vector<LocalRank> local;      ///< by local index
    std::map<int, Link> links;         ///< by rank
    Hello hello;                       ///< for connections that are made later
    ddprun::UniqueFd p2p_listener;     ///< with several nodes: for sends and receives
    std::map<int, Link> leaders;       ///< if this rank leads its node: the other leaders, by rank
    AllReduceRules rules;              ///< the same on all ranks
};

/// Collective. Throws Error{Timeout} or Error{PeerLost} naming the ranks, Error{System}.
[[nodiscard]] Connected connect_members(const GroupSpec& spec);

class NativeBackend final : public BackendImpl {
public:
    NativeBackend(const GroupSpec& spec, Connected connected);
    ~NativeBackend() override;

    [[nodiscard]] Backend kind() const override { return Backend::Native; }
    bool open(const Operation& operation) noexcept override;
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation&& operation) override;
    bool open_transfer(const TransferBatch& batch) noexcept override { return p2p_ && p2p_->open(batch); }
    [[nodiscard]] bool finish_transfer(const TransferBatch& batch) noexcept override { return p2p_->finish(batch); }
    [[nodiscard]] std::shared_ptr<WorkState> transfer(TransferBatch batch) override;
    [[nodiscard]] Arena& arena() override { return arena_; }
    void abort(std::string_view reason) override;
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const override {
        return WorkState::after_callbacks(&node_, std::move(end));
    }
    [[nodiscard]] std::string where_is(int rank) const override;
    [[nodiscard]] int global_rank(int rank) const override {
        return members_[static_cast<std::size_t>(rank)].global_rank;
    }
    [[nodiscard]] RankState state_of(int rank) const override;
    [[nodiscard]] int stopped_pid(int rank) const override;
    [[nodiscard]] std::optional<Error> failure() const override { return node_.failure(); }

    /// Runs operations until `work` is done. If somebody else runs, or one before it has a later deadline, sees to it
    /// that the progress thread goes on, and comes back.
    void help(const WorkState& work);
    /// A callback of `work` has thrown that. Nothing is done if the group has failed already: it may be of the same.
    void give_up_for(const WorkState& work, std::string_view thrown);
    /// What has been opened only shall be finished by the progress thread.
    void hurry();

private:
    struct Job {
        Operation operation;
        std::shared_ptr<WorkState> work;
        Step step = Step::kNone;  ///< as far as open() and submit() came
        bool given = false;       ///< peers need nothing more of us
    };

    class QueueLock;  ///< of mutex_ and what it protects

    void run();
    void wait_until_wanted(QueueLock& lock);
    void look_around();
    void run_all();
    [[nodiscard]] std::shared_ptr<WorkState> enqueue(Operation&& operation, Step step);
    [[nodiscard]] bool can_open_behind_others(const Operation& operation);
    [[nodiscard]] bool may_do_at_once(const Operation& operation) const;
    [[nodiscard]] bool open_one_shot(const Operation& operation);
    [[nodiscard]] bool open_all_reduce(const Operation& operation);
    [[nodiscard]] Step go_on(const Operation& operation);
    [[nodiscard]] Team team() {
        return {.topology = topology_,
                .node = node_,
                .links = links_ ? &*links_ : nullptr,
                .scratch = scratch_,
                .rules = rules_,
                .members = members_};
    }
    [[nodiscard]] std::optional<Job> next_job(ddprun::TimePoint latest = ddprun::TimePoint::max());
    [[nodiscard]] OwnBuffers own_buffers(const Operation& operation) const {
        return {.input = own_buffer(operation.buffer), .output = own_buffer(operation.result())};
    }
    [[nodiscard]] OwnBuffer own_buffer(const Buffer& buffer) const;
    void perform(const Job& job);
    void note_unfinished(const Job& job);
    void complete(WorkState& work, std::exception_ptr error);
    void fail(const Error& failure, std::uint64_t after);
    void end(const Error& failure, bool tell_peers, std::uint64_t after);
    [[nodiscard]] Error out_of_memory() const;
    [[nodiscard]] std::shared_ptr<P2p> make_p2p(Hello hello, ddprun::UniqueFd listener);

    const std::string name_;
    const int rank_;
    const Topology topology_;
    const std::vector<Member> members_;
    const AllReduceRules rules_;
    HeapArena arena_;
    Node node_;
    std::optional<Links> links_;
    std::optional<Watch> watch_;
    LightMutex running_;            ///< taken before mutex_
    OperationScratch scratch_;      ///< who holds running_ only, as node_'s and links_'s operations
    std::optional<Error> failure_;  ///< who holds running_ only
    bool left_in_flight_ = false;   ///< work that others need has failed because we leave; the same
    /// Of running_, from open() to submit() of an operation that is opened.
    std::unique_lock<LightMutex> opening_;
    bool opened_alone_ = false;     ///< that one, with no other in the queue
    bool opened_one_shot_ = false;  ///< and is_one_shot()

    std::mutex mutex_;
    std::atomic<bool> caller_waits_{true};  ///< for what it calls, it seems, and does not compute meanwhile; as idle_
    std::atomic<bool> idle_{true};          ///< nothing is queued, wanted or ending; written under mutex_
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool wanted_ = false;  ///< the progress thread has to look after `jobs_`
    WakeChoice choice_;
    bool watching_ = false;  ///< the progress thread looks around every now and then
    bool stopping_ = false;
    bool aborted_ = false;  ///< and the peers may not know yet
    const std::shared_ptr<BackendHandle> handle_;
    std::mutex p2p_mutex_;
    /// With one node: from the first send or receive on. Written under p2p_mutex_, by transfer() only.
    std::shared_ptr<P2p> p2p_;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

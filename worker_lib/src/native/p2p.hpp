#pragma once
// P2p: the sends and receives of one rank in its group. They run beside the collectives, with a lock and a thread of
// their own; design in docs/design/009-point-to-point.md.
//
// Whoever holds `running_` makes progress for all of them: the thread that submits, for as long as something moves; a
// thread that waits, which spins and then sleeps; and the thread "ddp-p2p" while nobody waits. It sleeps without the
// lock, so that a waiter never has to wait for it.
//
// Small messages of neighbours need none of that, nor a Work: they go and come in open() and finish()
// (p2p_at_once.cpp).

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_lib/src/forks.hpp"
#include "worker_lib/src/light_mutex.hpp"
#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/p2p_bell.hpp"
#include "worker_lib/src/native/p2p_lane.hpp"
#include "worker_lib/src/native/p2p_network.hpp"
#include "worker_lib/src/native/p2p_peer.hpp"

namespace ddp::detail {

struct P2pSetup {
    std::string group;
    int rank = 0;
    const Topology& topology;            ///< outlives the P2p's stop(), as all that is not a value here
    const std::vector<Member>& members;  ///< by rank
    Node& node;
    const HeapArena& arena;
    Hello hello;                                   ///< on connections to other nodes
    ddprun::UniqueFd listener;                     ///< for them; none with one node
    std::function<void(const Error&)> on_failure;  ///< tells the group, once; any thread
    /// A callback of that work has thrown that. Any thread, also when the group has gone.
    std::function<void(const WorkState&, std::string_view)> on_thrown;
};

class P2p : public std::enable_shared_from_this<P2p> {
public:
    /// Throws Error{System}.
    explicit P2p(P2pSetup setup);
    ~P2p();
    P2p(const P2p&) = delete;
    P2p& operator=(const P2p&) = delete;

    [[nodiscard]] const Participant& self() const { return self_; }

    static constexpr std::size_t kMostAtOnce = 8;  ///< transfers of a batch that open() takes
    /// Before submit(), under the caller's lock of numbers: sends what can go at once. False: nothing has happened.
    /// Else finish() has to follow, and nobody moves anything until then.
    [[nodiscard]] bool open(const TransferBatch& batch) noexcept;
    /// Receives what comes within a moment. True: the whole batch is done; else submit() has to follow.
    [[nodiscard]] bool finish(const TransferBatch& batch) noexcept;
    /// Whether a peer has got something of what has to be submitted.
    [[nodiscard]] bool has_sent() const { return at_once_ != 0; }
    /// Queues it; its start() moves it. The number of the batch must be new.
    [[nodiscard]] std::shared_ptr<WorkState> submit(TransferBatch batch);
    /// Starts what has been submitted, and moves for a moment what can be moved. The caller must hold no lock: works
    /// end here, and their callbacks may submit others.
    void start();
    /// Makes progress until `work` is done; comes back at once if another thread is at it.
    void help(const P2pWork& work);
    /// Moves what can be moved now.
    void hurry();
    /// Whether this is a child of fork(): what there is to be done is its parent's.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }
    /// Whoever sleeps looks at the state of the node. Any thread.
    void interrupt() { bell_.ring_own(); }
    /// Fails what is under way with the node's failure, which there must be, and tells other nodes the reason. Nothing
    /// is touched afterwards.
    void stop(const Error& goodbye, bool failed);

private:
    struct Done {
        std::shared_ptr<P2pWork> work;
        std::exception_ptr error;
    };
    struct LocalPeer {
        P2pPeer* peer = nullptr;
        int index = 0;  ///< local
        PostPage* page = nullptr;
        std::uint64_t listening = 0;  ///< as last seen, and since when
        ddprun::TimePoint since;
    };

    struct RemotePeer {
        P2pPeer* peer = nullptr;
        SocketOutlet* outlet = nullptr;
        SocketInlet* inlet = nullptr;
        std::optional<std::string> gone;  ///< why
        ddprun::TimePoint until;          ///< from then on it will not say why any more
        std::uint64_t arrived = 0;        ///< bytes, as last seen
        std::uint64_t listening = 0;      ///< as last heard, and since when, or since when we ask
        ddprun::TimePoint since;
        ddprun::TimePoint asked;
    };

    using Running = std::unique_lock<LightMutex>;

    // Who holds `running_`:
    [[nodiscard]] LocalPeer* neighbour(int rank);
    [[nodiscard]] bool glance(LocalPeer& from, const Transfer& transfer) noexcept;
    [[nodiscard]] bool pass();
    void collect_finished();
    void take_submitted();
    [[nodiscard]] P2pPeer& peer(int rank);
    [[nodiscard]] std::unique_ptr<P2pPeer> connect_self();
    [[nodiscard]] std::unique_ptr<P2pPeer> connect_neighbour(int rank, int index);
    [[nodiscard]] std::unique_ptr<P2pPeer> connect_remote(int rank);
    void let_in();
    void look_at_connections();
    [[nodiscard]] bool drain(P2pPeer& peer);
    [[nodiscard]] bool fail_for(int rank, const Error& why);
    void say_goodbye(const Error& why, bool failed);
    [[nodiscard]] bool guarded_pass();
    void fail_by_exception();
    [[nodiscard]] bool settle();
    void look_around();
    void look_for_absent();
    void look_at_deadlines();
    void ask_remotes(ddprun::TimePoint now);
    [[nodiscard]] bool is_listening(int rank) const;
    [[nodiscard]] std::string name_of(int rank) const;
    void fail(const Error& failure, const P2pWork* about, bool tell);
    void ring(const LocalPeer& neighbour) const;
    void deliver(Running& running);
    void leave(Running& running);
    void hand_over(Running& running);
    void complete(const std::vector<Done>& done) const;
    [[nodiscard]] bool move(Running& running);
    [[nodiscard]] bool owes_word() const;
    void need_thread();
    /// Also while a peer waits for a word that there was no room for.
    [[nodiscard]] bool busy() const { return !in_flight_.empty() || has_to_send(); }
    [[nodiscard]] bool has_to_send() const;
    /// Until somebody rings, a connection is ready, or `patience` is over. Returns whether one of the former.
    [[nodiscard]] bool sleep(int patience_ms, bool with_network) const;

    void run();

    const ProcessMark home_;
    P2pSetup setup_;
    const Participant self_;
    std::optional<ReadySet> ready_;  ///< with several nodes
    std::optional<SocketDoor> door_;
    Bell bell_;  ///< not gone before the works are: who waits for one may ring
    PostPage& page_;
    const int pauses_;

    LightMutex running_;  ///< taken before mutex_
    P2pOwner owner_;
    std::map<int, std::unique_ptr<P2pPeer>> by_rank_;
    std::vector<P2pPeer*> peers_;
    std::vector<LocalPeer> neighbours_;
    std::vector<int> neighbour_of_;  ///< by rank: its place among the neighbours, or -1; empty with none
    std::vector<RemotePeer> remotes_;
    ddprun::TimePoint looked_ = ddprun::Clock::now();  ///< after the others, the last time
    bool look_at_network_ = true;                      ///< in the next pass: each look is a system call
    std::vector<std::byte> loop_;                      ///< the lane to ourselves
    std::map<std::uint64_t, std::shared_ptr<P2pWork>> in_flight_;
    std::vector<Done> done_;
    std::optional<Error> failure_;
    bool goodbye_said_ = false;

    // From open() to submit() or finish(), whose callers are one at a time:
    Running opening_;
    std::uint32_t at_once_ = 0;  ///< a bit for each transfer that is done; outside of that none
    unsigned vain_ = 0;          ///< glances, one after another

    bool overlooked_ = false;  ///< peers may not see that we sleep

    std::atomic<bool> helped_{false};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> long_nap_{false};  ///< the thread must be rung, or looks in too late
    std::atomic<bool> submitted_any_{false};
    std::mutex mutex_;
    std::deque<std::shared_ptr<P2pWork>> submitted_;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

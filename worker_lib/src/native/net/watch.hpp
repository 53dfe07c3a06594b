#pragma once
// Watch: reports failures between nodes, even while they exchange no messages. The leader of every node (its first
// rank) has one, with a thread and a connection to every other leader that carries nothing else. It reports to the
// other leaders that the group has failed on its node, or that a rank has left or died, and after which operation. It
// ends waits on its own node for ranks that will not arrive.
//
// The thread looks at the memory of its node every Waiter::kNap, and as soon as a process ends. It continues after the
// group has failed, because survivors still ask which ranks are present. Groups on one node have no watch: their waits
// see everything.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/links.hpp"
#include "worker_lib/src/native/node/node.hpp"
#include "worker_lib/src/native/protocol/failure_note.hpp"

namespace ddp::detail {

/// A message from one leader to another.
struct Alarm {
    static constexpr std::uint32_t kMagic = 0x64647061;  // "ddpa"
    enum class Kind : std::uint32_t { kFailed, kDeparted };

    std::uint32_t magic = kMagic;
    Kind kind = Kind::kFailed;
    std::int64_t generation = 0;
    std::uint64_t after = 0;           ///< last operation that the rank has completed, or that the failure does not end
    Departure how = Departure::kLeft;  ///< kDeparted only
    std::uint32_t unused = 0;          ///< so that all bytes of an alarm are defined
    FailureNote note;                  ///< the reason; kDeparted: its first culprit is the rank
};
static_assert(sizeof(Alarm) == 32 + sizeof(FailureNote), "it is sent as it lies in memory");

class Watch {
public:
    /// `peers`: connections to the other leaders, by rank. `node` must outlive this.
    Watch(Node& node, std::int64_t generation, std::map<int, Link> peers);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// Ends the thread. Only report_end() reports anything after that.
    void stop();
    /// Returns the departure of a rank, if it is known to be gone. Any thread.
    [[nodiscard]] std::optional<Absence> departure_of(int rank) const;
    /// Returns the rank of the job whose connection has ended because its host did not answer; -1: none has. Any
    /// thread.
    [[nodiscard]] int unreachable() const { return unreachable_.load(std::memory_order_relaxed); }
    /// Reports the failure, if there is one, and that this rank leaves. After stop().
    void report_end(const std::optional<Failure>& failure, const Absence& departure);

private:
    struct Peer {
        int rank = 0;
        Link link;
        Alarm incoming;
        std::size_t received = 0;
        bool departed = false;  ///< it has reported that, so its connection may end
    };
    /// A rank that takes part in no later operation.
    struct Missing {
        Absence absence;
        ddprun::TimePoint since;
    };

    void run();
    [[nodiscard]] bool wait();
    void receive_from(Peer& peer);
    void take(Peer& peer);
    void look_at_own_node();
    void end_waits_for_missing();
    void report_own_failure();
    void lose(Peer& peer, int errno_value = 0);
    void add_missing(const Absence& absence);
    void report_failure(const Failure& failure, std::uint64_t after);
    void report_departure(const Absence& absence);
    void report(Alarm alarm, const Failure& why);

    Node& node_;
    const std::int64_t generation_;
    std::vector<Peer> peers_;
    std::vector<bool> local_missing_;  ///< by local index: reported already
    std::vector<Missing> missing_;
    mutable ddprun::Mutex absences_mutex_;
    std::map<int, Absence> absences_ GUARDED_BY(absences_mutex_);  ///< those of `missing_`, by rank
    std::uint64_t reported_after_ = kAllValid;  ///< of the last failure reported; only a lower number is reported
    ddprun::UniqueFd interrupt_;                ///< eventfd
    std::atomic<int> unreachable_{-1};
    std::atomic<bool> stopping_{false};
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

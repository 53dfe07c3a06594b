#pragma once
// Watch: how a node hears of failures elsewhere while its ranks have nothing to do with each other. The leader of every
// node (its first rank) has one, with a thread and a connection to every other leader that carries nothing else. It
// tells the others what happens on its node: that the group has failed, or that a rank has left or died, after which
// operation. It ends the waits of its own node when one of them is for a rank that will not come.
//
// The thread looks at the memory of its node 20 times a second, and as soon as a process ends. It goes on when the
// group has failed: survivors still ask who is there. Groups on one node have no watch: their waits see all.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "worker_lib/src/native/failure_note.hpp"
#include "worker_lib/src/native/links.hpp"
#include "worker_lib/src/native/node.hpp"

namespace ddp::detail {

/// What one leader tells another.
struct Alarm {
    static constexpr std::uint32_t kMagic = 0x64647061;  // "ddpa"
    enum class Kind : std::uint32_t { kFailed, kDeparted };

    std::uint32_t magic = kMagic;
    Kind kind = Kind::kFailed;
    std::int64_t generation = 0;
    std::uint64_t after = 0;           ///< the last operation that the rank has done, or that the failure leaves alone
    Departure how = Departure::kLeft;  ///< of kDeparted
    FailureNote note;                  ///< why; kDeparted: its first culprit is the rank
};

class Watch {
public:
    /// `peers`: connections to the other leaders, by rank. `node` must outlive this.
    Watch(Node& node, std::int64_t generation, std::map<int, Link> peers);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// From now on only say_goodbye() tells anybody anything.
    void stop();
    /// Whether a rank is known to be gone, and how. Any thread.
    [[nodiscard]] std::optional<Absence> departure_of(int rank) const;
    /// The last words of this rank, after stop(): the failure, or else that it leaves.
    void say_goodbye(const std::optional<Error>& failure, const Absence& departure);

private:
    struct Peer {
        int rank = 0;
        Link link;
        Alarm incoming;
        std::size_t received = 0;
        bool departed = false;  ///< it said so: its connection may end
    };
    /// A rank that will come to no later operation.
    struct Missing {
        Absence absence;
        ddprun::TimePoint since;
    };

    void run();
    [[nodiscard]] bool wait();
    void listen_to(Peer& peer);
    void take(Peer& peer);
    void look_at_own_node();
    void end_hopeless_waits();
    void pass_on_failure();
    void lose(Peer& peer);
    void miss(const Absence& absence);
    void tell_failure(const Error& failure, std::uint64_t after);
    void tell_departure(const Absence& absence);
    void tell(Alarm alarm, const Error& why);

    Node& node_;
    const std::int64_t generation_;
    std::vector<Peer> peers_;
    std::vector<bool> local_gone_;  ///< by local index: known to be gone
    std::vector<Missing> missing_;
    mutable std::mutex gone_mutex_;
    std::map<int, Absence> gone_;             ///< those of `missing_`, by rank
    std::uint64_t told_after_ = kNotSpoiled;  ///< of failures: only departures, and lower numbers, are news
    ddprun::UniqueFd interrupt_;              ///< eventfd
    std::atomic<bool> stopping_{false};
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

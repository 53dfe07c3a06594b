#pragma once
// NativeBackend: the queue and progress thread of one group on CPUs. submit() and abort() from any thread.

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
#include "worker_lib/src/native/arena.hpp"
#include "worker_lib/src/native/collectives.hpp"
#include "worker_lib/src/native/links.hpp"
#include "worker_lib/src/native/member.hpp"
#include "worker_lib/src/native/node.hpp"
#include "worker_lib/src/native/watch.hpp"

namespace ddp::detail {

/// What meeting all peers has given.
struct Connected {
    Topology topology;
    std::shared_ptr<Segment> segment;  ///< the own one
    std::vector<LocalRank> local;      ///< by local index
    std::map<int, Link> links;         ///< by rank
    std::map<int, Link> leaders;       ///< if this rank leads its node: the other leaders, by rank
};

/// Collective. Throws Error{Timeout} or Error{PeerLost} naming the ranks, Error{System}.
[[nodiscard]] Connected connect_members(const GroupSpec& spec);

class NativeBackend final : public BackendImpl {
public:
    NativeBackend(const GroupSpec& spec, Connected connected);
    ~NativeBackend() override;

    [[nodiscard]] Backend kind() const override { return Backend::Native; }
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation operation) override;
    [[nodiscard]] Arena& arena() override { return arena_; }
    void abort(std::string_view reason) override;

private:
    struct Job {
        Operation operation;
        std::shared_ptr<WorkState> work;
    };

    void run();
    [[nodiscard]] std::optional<Job> next_job();
    [[nodiscard]] OwnBuffer own_buffer(const Buffer& buffer) const;
    void perform(const Job& job);
    void fail(const Error& failure);
    void end(const Error& failure, bool tell_peers);

    const std::string name_;
    const int rank_;
    const Topology topology_;
    HeapArena arena_;
    Node node_;
    std::optional<Links> links_;
    std::optional<Watch> watch_;
    NetworkScratch scratch_;        ///< progress thread only
    std::optional<Error> failure_;  ///< progress thread only

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool stopping_ = false;
    bool aborted_ = false;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail

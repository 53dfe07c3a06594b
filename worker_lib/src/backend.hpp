#pragma once
// Backend: how the collectives of one group are carried out. Two implementations, the native CPU backend (native/) and
// NCCL (nccl/); the first is the oracle for the second. ProcessGroup checks arguments and numbers the operations; a
// backend runs them in the order of submit().

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "ddp/process_group.hpp"
#include "ddp/store.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/board.hpp"
#include "worker_lib/src/transfer.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp::detail {

enum class OpKind : std::uint8_t {
    kAllReduce,
    kBroadcast,
    kBarrier,
    kReduce,
    kReduceScatter,
    kAllGather,
    kAllGatherV,
    kGather,
    kGatherV,
    kScatter,
    kScatterV,
    kAllToAll,
    kAllToAllV,
};
[[nodiscard]] std::string_view to_string(OpKind kind);
[[nodiscard]] constexpr bool reduces(OpKind kind) {
    return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}
[[nodiscard]] constexpr bool gathers(OpKind kind) { return kind == OpKind::kGather || kind == OpKind::kGatherV; }
[[nodiscard]] constexpr bool scatters(OpKind kind) { return kind == OpKind::kScatter || kind == OpKind::kScatterV; }
/// Each rank passes the parts of all.
[[nodiscard]] constexpr bool shares_counts(OpKind kind) {
    return kind == OpKind::kAllGatherV || kind == OpKind::kGatherV || kind == OpKind::kScatterV;
}
[[nodiscard]] constexpr bool has_root(OpKind kind) {
    return kind == OpKind::kBroadcast || kind == OpKind::kReduce || gathers(kind) || scatters(kind);
}

/// One collective, checked. `seq` counts from 1 in its group.
struct Operation {
    OpKind kind = OpKind::kBarrier;
    Buffer buffer;                    ///< what this rank gives, and gets where there is no `output`
    std::optional<Buffer> output;     ///< what it gets; without data on ranks that get nothing
    std::vector<std::size_t> counts;  ///< kAllToAllV: what we give to each rank; other V kinds: each rank's part
    std::vector<std::size_t> receive_counts;  ///< kAllToAllV: what we expect of each rank
    /// Of `counts`, where they are the same on all ranks, plus the number of the caller's step, if it has one.
    std::uint64_t counts_hash = 0;
    ReduceOp reduce_op = ReduceOp::Sum;
    int root = 0;
    Stream stream;
    std::string tag;
    std::uint64_t seq = 0;
    ddprun::Duration timeout{};  ///< `deadline` is that long after the call
    ddprun::TimePoint deadline;
    BoardTicket ticket;  ///< what becomes of it is written there; WorkState does

    [[nodiscard]] const Buffer& result() const { return output ? *output : buffer; }
    /// The buffer whose type the ranks compare, and whose count too unless there are `counts`.
    [[nodiscard]] const Buffer& part() const {
        return kind == OpKind::kReduceScatter || scatters(kind) ? result() : buffer;
    }
    /// Elements as the ranks compare them: 0 where each has its own number.
    [[nodiscard]] std::size_t compared_count() const;
};

/// "#183 all_reduce sum f32[6572160] 'bucket 3'": the form in which errors name an operation.
[[nodiscard]] std::string describe(const Operation& operation);

/// The members of a group and how they find each other.
struct GroupSpec {
    std::string name;                 ///< for people, and on the board: "reducer of world"
    std::string path;                 ///< unique in the job and generation, in all store keys; empty: the name is
    int rank = 0;                     ///< of this process in this group
    std::vector<int> members;         ///< world ranks, by group rank
    std::vector<std::string> places;  ///< "host a, pid 71", by group rank, for errors; empty: nobody has said it yet
    int node_rank = 0;                ///< of this process; peers publish theirs through the store
    std::int64_t generation = 0;
    int world_size = 1;     ///< worlds of different sizes may follow each other in one generation: see group_key()
    std::int64_t init = 1;  ///< the round in which the world has met (init_rounds.hpp): each has keys of its own
    std::shared_ptr<Store> store;
    ddprun::Duration default_timeout{};
    ddprun::Duration init_timeout{};
    int device = -1;
};

[[nodiscard]] inline const std::string& path_of(const GroupSpec& spec) {
    return spec.path.empty() ? spec.name : spec.path;
}

/// For errors, the one form in which ranks are named: "rank 3 (host a, pid 71)", or "rank 3" where its place is not
/// known; of a group that counts otherwise than the job "rank 1 (global rank 5, host a, pid 71)".
/// global_rank   in the job; -1: unknown
[[nodiscard]] std::string name_rank(int rank, int global_rank, std::string_view place);
/// With its place, as far as `spec` knows.
[[nodiscard]] std::string name_rank(const GroupSpec& spec, int rank);
/// This process, for texts that have its place elsewhere: "rank 3", "rank 1 (global rank 5)".
[[nodiscard]] std::string name_self(const GroupSpec& spec);

/// Error{InvalidArgument} for a call that is wrong here. Of eight ranks on one terminal it says which one: "group
/// 'world': rank 3 (host a, pid 71): WRONG".
[[nodiscard]] Error refusal(const GroupSpec& spec, std::string_view wrong);

/// What a backend knows of a rank besides its own.
struct RankState {
    bool gone = false;  ///< it will never do anything any more
    std::string text;   ///< in words that begin with its name; empty: nothing is known
    // How it went; neither: nothing is heard of its host, which may be the network's fault.
    bool left = false;   ///< it destroyed the group; its process may go on
    bool ended = false;  ///< its process has ended: a kernel says so
};

class BackendImpl {
public:
    virtual ~BackendImpl() = default;
    [[nodiscard]] virtual Backend kind() const = 0;
    /// Of the same kind, for another group. Collective over spec.members; throws as make_native_backend.
    [[nodiscard]] virtual std::unique_ptr<BackendImpl> make_another(const GroupSpec& spec) const;
    /// Before submit() of the same operation, by the same thread: peers may already get what they need of this rank, so
    /// that they need not wait while the operation is written down. submit() has to follow, whatever happens.
    /// Whether they do.
    virtual bool open(const Operation& /*operation*/) noexcept { return false; }
    /// Null: it is done already, and well.
    [[nodiscard]] virtual std::shared_ptr<WorkState> submit(Operation&& operation) = 0;
    /// Before transfer() of the same batch, by the same thread, which holds the lock that numbers them: peers may
    /// already get what it sends. False: nothing has happened. Else finish_transfer() has to follow.
    virtual bool open_transfer(const TransferBatch& /*batch*/) noexcept { return false; }
    /// True: all of it is done, and well; else transfer() has to follow.
    [[nodiscard]] virtual bool finish_transfer(const TransferBatch& /*batch*/) noexcept { return false; }
    /// Queues sends and receives. On the native backend they run beside the operations from the start() of what it
    /// returns, with NCCL among them.
    [[nodiscard]] virtual std::shared_ptr<WorkState> transfer(TransferBatch batch) = 0;
    [[nodiscard]] virtual Arena& arena() = 0;
    virtual void abort(std::string_view reason) = 0;
    /// WorkState::after_callbacks() of its works: until a thread has left their callbacks it cannot end the backend.
    [[nodiscard]] virtual bool after_callbacks(std::function<void()> end) const = 0;
    /// Why nothing runs any more, as far as it is known here. Any thread.
    [[nodiscard]] virtual std::optional<Error> failure() const;
    /// "host a, pid 71", or nothing. Any thread, as the next ones; all work after a failure, too.
    [[nodiscard]] virtual std::string where_is(int rank) const;
    /// In the job; -1: unknown.
    [[nodiscard]] virtual int global_rank(int rank) const;
    /// As name_rank().
    [[nodiscard]] std::string name_of(int rank) const { return name_rank(rank, global_rank(rank), where_is(rank)); }
    [[nodiscard]] virtual RankState state_of(int rank) const;
    /// The process of a rank of this machine if it is stopped; 0: it is not, or nothing is known. Reads files.
    [[nodiscard]] virtual int stopped_pid(int rank) const;
};

/// Collective over spec.members: returns when all of them are connected. Throws Error{Timeout} naming the absent ranks.
[[nodiscard]] std::unique_ptr<BackendImpl> make_native_backend(const GroupSpec& spec);

/// Error{Unavailable} with one clear line when there is no NCCL, driver or device here.
[[nodiscard]] std::unique_ptr<BackendImpl> make_nccl_backend(const GroupSpec& spec);

/// Whether make_nccl_backend could work on this machine, and if not, why: "libnccl.so.2 not found", "no CUDA device".
/// device   the one that make_nccl_backend would take; -1: any
struct NcclAvailability {
    bool usable = false;
    std::string reason;
};
[[nodiscard]] NcclAvailability probe_nccl(int device = -1);

}  // namespace ddp::detail

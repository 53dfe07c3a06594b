#pragma once
// ProcessGroup: the collectives of a set of ranks.
//
// Every rank of a group makes the same calls in the same order, from one thread at a time; the operations run in that
// order, one after another, while the callers go on. Buffers belong to the library until the Work is done. Count 0 is
// legal. Sizes, types and operations are compared across ranks on every call of the native backend: a mismatch is an
// error that names both sides, never a hang. NCCL compares nothing: there it ends at the operation's deadline, if not
// in wrong values. Every wait has a deadline. Results are the same bits on all ranks, and from run to run. Counts are
// in elements. A call with wrong arguments throws Error{InvalidArgument} at once, and the group stays usable.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ddp/batch.hpp"
#include "ddp/error.hpp"
#include "ddp/types.hpp"
#include "ddp/work.hpp"

namespace ddp {

class GradientReducer;
namespace detail {
class GroupImpl;
}

/// Memory in which collectives need no copy: shared by the ranks of a node (memfd). Freed with its group.
class Arena {
public:
    virtual ~Arena() = default;
    /// `bytes` of zeroed memory, aligned to 128. Throws Error{System} when there is no room. Not collective.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
};

class ProcessGroup {
public:
    explicit ProcessGroup(std::unique_ptr<detail::GroupImpl> impl);
    ProcessGroup(ProcessGroup&&) noexcept;
    ProcessGroup& operator=(ProcessGroup&&) noexcept;
    /// Waits for nothing: operations in flight fail with Aborted. Peers that still need this rank (native backend) get
    /// Error{PeerLost} at once, with its name and the last operation that it has done. Inside a callback of its own
    /// works (Work::then) all of this happens when the callback has returned.
    ~ProcessGroup();

    [[nodiscard]] int rank() const;
    [[nodiscard]] int size() const;
    [[nodiscard]] const std::string& name() const;
    [[nodiscard]] Backend backend() const;
    /// A rank as errors name it: "rank 3 (host a, pid 71)", after a split "rank 1 (global rank 3, host …)". Any thread,
    /// also after a failure. Throws Error{InvalidArgument} when there is no such rank.
    [[nodiscard]] std::string name_of(int rank) const;

    // Where there are two buffers they may not overlap, unless in the one way that is called "in place" below. A buffer
    // that a rank has no use for (the output of who is not root, say) is not looked at and may be {}. "The whole" is
    // one part for each rank, by rank.
    //
    // Each call throws Error{InvalidArgument} for what is wrong in itself, at once and on this rank alone. All else is
    // thrown by the Work's wait(): Mismatch (the ranks called different operations, or with different sizes), Timeout
    // (its deadline has passed; the culprits are those who are late), PeerLost (a rank has ended, or its host is out of
    // reach), Aborted (abort(), or this group's end) or System. Then the group has failed, on all ranks; what is still
    // in flight ends with the same error, and the buffers of what failed hold no defined values. What a rank had done
    // before its process ended all others do as well, on the native backend, unless its host ended with it; if it was
    // the first of its node, as far as they need no more than 300 ms longer.
    //
    // With NCCL a call may itself wait for its peers to make it too, until its deadline or abort(): the first one
    // between two ranks connects them. No call can be part of a CUDA graph: on a stream in capture it is refused.

    /// Every rank ends with the reduction of all ranks' `inout`: those of each node in rank order, then the nodes in
    /// the order of their first ranks; f16 and bf16 are rounded once.
    Work all_reduce(Buffer inout, ReduceOp op, Stream stream = {}, OpOptions options = {});
    /// The same from `in` to `out`, of as many elements each. In place: they are the same memory.
    Work all_reduce(Buffer in, Buffer out, ReduceOp op, Stream stream = {}, OpOptions options = {});
    /// Every rank ends with root's `inout`.
    Work broadcast(Buffer inout, int root, Stream stream = {}, OpOptions options = {});
    /// As all_reduce, but only root has an `out`. In place there: the same memory. No `in` is changed but root's in
    /// place.
    Work reduce(Buffer in, Buffer out, int root, ReduceOp op, Stream stream = {}, OpOptions options = {});
    /// Each rank gets its part of the reduction: `in` is the whole, size() * out.count elements.
    /// In place: `out` is the own part of `in`; the other parts stay as they were.
    Work reduce_scatter(Buffer in, Buffer out, ReduceOp op, Stream stream = {}, OpOptions options = {});

    /// Every rank ends with all ranks' `in`, of equal count: `out` is the whole, size() * in.count elements.
    /// In place: `in` is the own part of `out`.
    Work all_gather(Buffer in, Buffer out, Stream stream = {}, OpOptions options = {});
    /// The same with parts of different sizes: rank r gives counts[r] elements. All ranks pass the same counts.
    Work all_gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, Stream stream = {},
                      OpOptions options = {});
    /// As all_gather and all_gather_v, but only root has an `out`.
    Work gather(Buffer in, Buffer out, int root, Stream stream = {}, OpOptions options = {});
    Work gather_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root, Stream stream = {},
                  OpOptions options = {});
    /// Each rank gets its part of root's `in`: size() * out.count elements, of which only root has any.
    /// In place: root's `out` is its part of `in`.
    Work scatter(Buffer in, Buffer out, int root, Stream stream = {}, OpOptions options = {});
    /// The same with parts of different sizes: rank r gets counts[r] elements. All ranks pass the same counts.
    Work scatter_v(Buffer in, Buffer out, std::span<const std::size_t> counts, int root, Stream stream = {},
                   OpOptions options = {});
    /// Part r of `in` goes to rank r; part r of `out` comes from it. Both have the same count, a multiple of size(),
    /// the same on all ranks. Never in place.
    Work all_to_all(Buffer in, Buffer out, Stream stream = {}, OpOptions options = {});
    /// The same with parts of different sizes: send_counts[r] elements to rank r, receive_counts[r] from it. What a
    /// rank sends and what its receiver expects is compared: a difference is Error{Mismatch} with both numbers.
    Work all_to_all_v(Buffer in, std::span<const std::size_t> send_counts, Buffer out,
                      std::span<const std::size_t> receive_counts, Stream stream = {}, OpOptions options = {});

    // Messages between two ranks. The k-th send with some tag meets the k-th receive of that tag; different tags may be
    // received in another order than sent. Both sides must name the same type and count: a difference is
    // Error{Mismatch} with both. They have numbers of their own ("p2p #3") and run beside the collectives: neither
    // waits for the other. A send of up to kEagerBytes is done without its receive, as long as what the receiver has
    // not taken of this rank, 80 bytes a message included, stays below kEagerWindow / 2 (on a node with more than 60
    // ranks less, but up to 500 always one message). Any other one may wait for it: never is more than kEagerWindow
    // stored. So a program in which two ranks both wait in send before either calls recv is wrong; use batch(). A
    // transfer that fails fails the group, as any operation does; one that has all come before is received even if its
    // sender is gone. What it would have filled in the arena may change until all ranks know of the failure. A callback
    // of Work::then may start others.
    //
    // With NCCL a transfer takes its turn among the group's operations, as they do, and no send is done before its
    // receive has come: what ranks have to do at the same time, such as to send and to receive, is one batch, and
    // collectives before it and after it are so on both sides. There are no tags: messages between two ranks meet in
    // the order of the calls. A batch with two tags to one rank, or from one, is Error{InvalidArgument}; so is one in
    // which a rank sends itself what it does not receive.

    static constexpr std::size_t kEagerBytes = std::size_t{16} << 10;
    static constexpr std::size_t kEagerWindow = std::size_t{256} << 10;

    /// To `destination`, which may be this rank. tag >= 0. A buffer in the arena needs no copy inside a node.
    Work send(Buffer buffer, int destination, int tag = 0, Stream stream = {}, OpOptions options = {});
    Work recv(Buffer buffer, int source, int tag = 0, Stream stream = {}, OpOptions options = {});
    /// Several of them as one Work, without an order between them. Must not outlive the group.
    [[nodiscard]] Batch batch();

    /// Done when every rank has called it.
    Work barrier(OpOptions options = {});
    /// A barrier that says who is missing; for places where ranks may come minutes apart, or not at all. Goes over the
    /// store, waits for no operation in flight, and blocks. `timeout` 0: the group's default. When not all come, every
    /// rank that did throws the same error, Timeout, at the deadline of the first that gives up: it names all missing
    /// ranks, what their neighbours know of them, and `where`. The group stays usable; who comes later gets that error
    /// at once. If a rank is known to be gone, the error is PeerLost, at once, and the group is of no use.
    void monitored_barrier(std::chrono::milliseconds timeout, std::string_view where = {});

    /// Collective over this group: ranks with equal `color` (>= 0) form a new group, ordered by (key, rank); a negative
    /// color gives nullptr. The new group has queues, connections and shared memory of its own. Throws Error{Timeout}
    /// naming those who have not called it within init_timeout, PeerLost at once if one of them is known to be gone,
    /// Aborted after abort(), Mismatch if ranks of one color give different names, InvalidArgument at once for a name
    /// of more than 200 bytes.
    [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);

    /// Collective over those who stay, after a failure or without one: a new group of all ranks but `exclude`, in the
    /// same order, with memory and connections of its own. The excluded need not be alive, and this group not usable.
    /// Under ddprun, as under torchrun, a worker that is killed or exits with an error ends all others, to start them
    /// anew (--max-restarts): those who may be excluded there are stopped, cut off, or have exited with 0.
    /// Waits for the survivors as long as init_timeout, then as long until they are connected. Throws InvalidArgument
    /// if it excludes this rank; Mismatch if survivors exclude different ranks, PeerLost or Timeout if one of them does
    /// not come: then call it again, without the culprits, too (of two failures at a time, two ranks may each have been
    /// told of one). Ranks that exclude the same ones and wait at the same time belong together,
    /// however often each has called it before. Of two sides that exclude each other only one goes on, the other gets
    /// Mismatch: the larger one wins, of equal ones that with the lowest rank, unless it comes when the other has
    /// formed already. A side that could lose waits a second for the other, if the excluded are not known to be gone.
    /// Who waits for ranks that have formed a group without it gets Mismatch at once, until they call again. From then
    /// on shrink the new group, not this one, which need not be kept.
    [[nodiscard]] std::unique_ptr<ProcessGroup> shrink(std::span<const int> exclude);

    /// Buffers that this group reduces without a copy. Memory stays valid as long as the group lives.
    [[nodiscard]] Arena& arena();

    /// Fails all work in flight and to come with Error{Aborted}, here at once; split() and monitored_barrier(), too.
    /// Only shrink() goes on working. Peers of the native backend hear of it within a moment,
    /// with the reason and this rank as culprit; with NCCL, when they notice. Any thread.
    void abort(std::string_view reason);

private:
    friend class Context;          // asks the ranks of the world where they are
    friend class GradientReducer;  // numbers the steps of its group
    std::unique_ptr<detail::GroupImpl> impl_;
};

}  // namespace ddp

#pragma once
// ProcessGroup: the collectives of a set of ranks. Arena: memory that they use without a copy.

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ddp/buffer.hpp"
#include "ddp/error.hpp"
#include "ddp/export.hpp"
#include "ddp/transfer_batch.hpp"
#include "ddp/types.hpp"
#include "ddp/work.hpp"

namespace ddp::detail {
class GroupImpl;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

class GradientReducer;

/// Memory that collectives use without a copy: the ranks of a node share it (memfd). Any thread may allocate. All of it
/// is freed with its group.
class Arena {
public:
    virtual ~Arena() = default;
    /// Returns `bytes` of zeroed memory, aligned to 128 bytes. Not collective. Throws Error{System} when there is no
    /// room.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
    /// Returns `count` elements of T, which are zero. On NCCL they are device memory: pass them to a collective as
    /// {span.data(), span.size(), Device::Cuda}.
    template <Element T>
    [[nodiscard]] std::span<T> allocate(std::size_t count) {
        const bool fits = count <= std::numeric_limits<std::size_t>::max() / sizeof(T);
        return {static_cast<T*>(allocate(fits ? count * sizeof(T) : std::numeric_limits<std::size_t>::max())), count};
    }
};

/// A group of ranks and their collectives. It has one member function per operation, as c10d::ProcessGroup has.
///
/// Every rank of a group makes the same calls in the same order, from one thread at a time. The operations run in that
/// order, one after another, and the calls return before they have ended. A buffer belongs to the library until its
/// Work is done. Counts are in elements, and 0 is legal. Every wait has a deadline. Results have the same bits on all
/// ranks and in every run. A call with wrong arguments throws Error{InvalidArgument} at once, and the group stays
/// usable.
///
/// The native backend compares sizes, types, labels and operations across ranks on every call: a difference is an error
/// that names both sides, never a hang. NCCL compares nothing on the device: there a difference ends at the operation's
/// deadline, or in wrong values.
///
/// Two threads that call collectives of one group without an order between them make wrong sums, because each rank has
/// them in another order. The group usually finds it: a call during a call of another thread or, on the native backend,
/// while an operation of another thread is in flight, throws Error{InvalidArgument} naming both and aborts the group.
/// A thread that takes over has to wait for the Work of the one before it. Callbacks of the group need only not call it
/// at the same time as another thread.
class ProcessGroup {
public:
    /// Leaves the other one without a group: it may only be destroyed or assigned to.
    ProcessGroup(ProcessGroup&&) noexcept;
    /// Ends this group as the destructor does.
    ProcessGroup& operator=(ProcessGroup&&) noexcept;
    /// Fails the operations in flight with Aborted. On the native backend it waits for nothing, and peers that still
    /// need this rank get Error{PeerLost} at once, with its name and the last operation that it completed. On NCCL it
    /// waits up to 5 s for the peers to end the group too, unless an exception ends it, and a few seconds for the
    /// device. Inside a callback of the group's own works (Work::then) this happens when the callback has returned.
    ~ProcessGroup();

    /// Returns this process's rank in the group.
    [[nodiscard]] int rank() const;
    /// Returns the number of ranks.
    [[nodiscard]] int size() const;
    /// Returns the name of the group in errors: "world", or the one that was passed to split().
    [[nodiscard]] const std::string& name() const;
    /// Returns Backend::Native or Backend::Nccl.
    [[nodiscard]] Backend backend() const;
    /// Returns a rank as errors name it: "rank 3 (host a, pid 71)", after a split "rank 1 (global rank 3, host …)". Any
    /// thread, also after a failure. Throws Error{InvalidArgument} when there is no such rank.
    [[nodiscard]] std::string name_of(int rank) const;

    /// @name Collectives
    /// Two buffers of one call may not overlap, except as "in place" below. A buffer that a rank does not use (the
    /// output on a rank that is not root) is ignored and may be {}. "The whole" is one part per rank, in rank order.
    ///
    /// A call throws Error{InvalidArgument} at once, on this rank alone, for arguments that are wrong in themselves.
    /// The Work's wait() throws all other errors:
    ///
    ///     Mismatch   the ranks called different operations, or with different sizes, types, roots or labels
    ///     Timeout    the operation's deadline has passed; the culprits are the late ranks
    ///     PeerLost   a rank's process has ended, or its host is unreachable
    ///     Aborted    abort() was called, or this group was destroyed
    ///     System     the operating system, CUDA or NCCL failed
    ///
    /// The group has then failed on all ranks. Operations in flight end with the same error, and buffers of failed
    /// operations hold unspecified values. Native backend: an operation that a rank completed before its process died
    /// completes on every other rank, unless the rank's host is lost too. If the dead rank was the first of its node,
    /// that holds only for operations which the other ranks complete within 300 ms.
    ///
    /// NCCL: operations whose buffers are host memory, and barriers without a stream, go to a native twin of the group,
    /// which the first of them makes: its call waits for all ranks, as long as its timeout. They are in no order
    /// with the operations on the device. A failure of the one is a failure of both.
    ///
    /// NCCL: a call may itself wait for its peers to make it too, until its deadline or abort(), because the first
    /// operation between two ranks connects them. No call can be part of a CUDA graph: it is refused on a stream that
    /// is being captured.
    /// @{

    /// Leaves the reduction of all ranks' `inout` on every rank. The ranks of each node are reduced in rank order, then
    /// the nodes in the order of their first ranks. f16 and bf16 are rounded once.
    Work all_reduce(Buffer inout, ReduceOp op, OpOptions options = {});
    /// Does the same from `in` to `out`, which have the same count. In place: they are the same memory.
    Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, OpOptions options = {});
    /// Copies root's `inout` to every rank.
    Work broadcast(Buffer inout, int root, OpOptions options = {});
    /// Leaves the reduction of all ranks' `in` in root's `out`. In place: root's `in` and `out` are the same memory. No
    /// other `in` is changed.
    Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, OpOptions options = {});
    /// Leaves each rank's part of the reduction in its `out`. `in` is the whole: size() * out.count elements.
    /// In place: `out` is the rank's own part of `in`; the other parts are unchanged.
    Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, OpOptions options = {});

    /// Copies all ranks' `in`, of equal count, to every rank. `out` is the whole: size() * in.count elements.
    /// In place: `in` is the rank's own part of `out`.
    Work all_gather(ConstBuffer in, Buffer out, OpOptions options = {});
    /// Does the same with parts of different sizes: rank r contributes counts[r] elements. All ranks pass the same
    /// counts.
    Work all_gather_v(ConstBuffer in, Buffer out, List<std::size_t> counts, OpOptions options = {});
    /// Does the same as all_gather(), but only root has an `out`.
    Work gather(ConstBuffer in, Buffer out, int root, OpOptions options = {});
    /// Does the same as all_gather_v(), but only root has an `out`.
    Work gather_v(ConstBuffer in, Buffer out, List<std::size_t> counts, int root, OpOptions options = {});
    /// Copies each rank's part of root's `in` to its `out`. Only root has an `in`: size() * out.count elements.
    /// In place: root's `out` is its part of `in`.
    Work scatter(ConstBuffer in, Buffer out, int root, OpOptions options = {});
    /// Does the same with parts of different sizes: rank r gets counts[r] elements. All ranks pass the same counts.
    Work scatter_v(ConstBuffer in, Buffer out, List<std::size_t> counts, int root, OpOptions options = {});
    /// Sends part r of `in` to rank r, and receives part r of `out` from it. Both have the same count, a multiple of
    /// size(), the same on all ranks. Never in place.
    Work all_to_all(ConstBuffer in, Buffer out, OpOptions options = {});
    /// Does the same with parts of different sizes: send_counts[r] elements to rank r, receive_counts[r] from it. If a
    /// rank sends another count than its receiver expects, that is Error{Mismatch} with both numbers.
    Work all_to_all_v(ConstBuffer in, List<std::size_t> send_counts, Buffer out, List<std::size_t> receive_counts,
                      OpOptions options = {});
    /// Returns a Work that is done when every rank has called barrier(). On NCCL with OpOptions::stream it is a step on
    /// the device, behind that stream; without one it does not wait for the device. The default stream, a null handle,
    /// counts as none: pass cudaStreamLegacy for it.
    Work barrier(OpOptions options = {});
    /// @}

    /// @name Messages
    /// The k-th send with a tag meets the k-th receive with that tag. Different tags may be received in another order
    /// than they were sent. Both sides must name the same type and count: a difference is Error{Mismatch} with both.
    /// Messages have numbers of their own ("p2p #3"). A message that fails fails the group, as any operation does. A
    /// message that has arrived completely is received even if its sender is gone. The arena memory of a failed receive
    /// may change until all ranks know of the failure. A callback of Work::then may start messages.
    ///
    /// Native backend: messages run beside the collectives, and neither waits for the other. A send of up to
    /// kEagerBytes completes without its receive, while the messages from this rank that the receiver has not received
    /// yet take less than kEagerWindow / 2, 80 bytes per message included. (That limit is lower on a node with more
    /// than 60 ranks, but one message always fits up to 500 ranks.) Any other send may wait for its receive: no more
    /// than kEagerWindow is ever stored. So a program in which two ranks both wait in send before either calls recv is
    /// wrong: use batch().
    ///
    /// NCCL: a message runs in order with the group's operations, and no send completes before its receive is called.
    /// So messages that run at the same time, such as a send and a receive, must be one batch, with the same
    /// collectives before and after it on both sides. There are no tags: messages between two ranks meet in the order
    /// of the calls. A batch with two tags to one rank, or from one, is Error{InvalidArgument}; so is a batch in which
    /// a rank sends itself a message that it does not receive.
    /// @{

    /// The largest send that completes without its receive.
    static constexpr std::size_t kEagerBytes = std::size_t{16} << 10;
    /// The most that is stored of one rank's messages which another one has not received yet.
    static constexpr std::size_t kEagerWindow = std::size_t{256} << 10;

    /// Sends `buffer` to `destination`, which may be this rank. tag >= 0. A buffer in the arena needs no copy inside a
    /// node.
    Work send(ConstBuffer buffer, int destination, int tag = 0, OpOptions options = {});
    /// Sends with tag 0.
    Work send(ConstBuffer buffer, int destination, OpOptions options) { return send(buffer, destination, 0, options); }
    /// Receives into `buffer` from `source`.
    Work recv(Buffer buffer, int source, int tag = 0, OpOptions options = {});
    /// Receives with tag 0.
    Work recv(Buffer buffer, int source, OpOptions options) { return recv(buffer, source, 0, options); }
    /// Returns an empty batch: several messages as one Work, without an order between them. Must not outlive the group.
    [[nodiscard]] TransferBatch batch();
    /// @}

    /// Blocks until every rank has called it. Its error names the missing ranks. For places where ranks may arrive
    /// minutes apart, or not at all. It goes over the store and waits for no operation in flight. Without a
    /// timeout the group's default applies. When ranks are missing, all others throw the same Timeout, at the deadline
    /// of the first one that gives up. It names all missing ranks, what their neighbours know of them, and `where`. The
    /// group stays usable, and a rank that calls later gets the same error at once. If a rank is known to be lost or to
    /// have left the group, the error is PeerLost, at once: shrink() the group then.
    void monitored_barrier(std::optional<std::chrono::milliseconds> timeout = {}, std::string_view where = {});

    /// Forms a new group of the ranks with equal `color` (>= 0), ordered by (key, rank); a negative color returns
    /// nullptr. Collective. The new group has queues, connections and shared memory of its own. Throws Error{Timeout}
    /// naming the ranks that have not called it within init_timeout, PeerLost at once if one of them is known to be
    /// gone, Aborted after abort(), Mismatch if ranks of one color pass different names, and InvalidArgument for a name
    /// of more than 200 bytes.
    [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);

    /// Returns a new group of all ranks but `exclude`, in the same order, with memory and connections of its own.
    /// Collective over the survivors, after a failure or without one. The excluded ranks need not be alive, and this
    /// group need not be usable. Afterwards shrink the new group, not this one, which may be destroyed.
    ///
    /// Waits up to init_timeout for the survivors, then as long again until they are connected. Throws InvalidArgument
    /// if it excludes this rank, Mismatch if survivors exclude different ranks, PeerLost or Timeout if a survivor does
    /// not arrive. Then call it again and exclude the culprits too: after two failures at the same time, two ranks
    /// may each know of only one.
    ///
    /// Ranks that exclude the same ranks and wait at the same time form a group, however often each has called it
    /// before. If two sides exclude each other, only one goes on, and the other gets Mismatch. The larger side wins, or
    /// if both are equal the one with the lowest rank, unless the other has formed its group already. A side that
    /// could lose waits a second for the other, unless the excluded ranks are known to be gone. A rank that waits for
    /// ranks which have formed a group without it gets Mismatch at once, until they call again.
    ///
    /// Under ddprun, as under torchrun, a worker that is killed or exits with an error ends all others, and they are
    /// restarted (--max-restarts). So the ranks to exclude there are stopped, cut off, or have exited with 0.
    [[nodiscard]] std::unique_ptr<ProcessGroup> shrink(List<int> exclude);

    /// Returns the memory that this group reduces without a copy. It stays valid as long as the group lives.
    [[nodiscard]] Arena& arena();

    /// Fails all work in flight and all later calls with Error{Aborted}, split() and monitored_barrier() included. Only
    /// shrink() still works. It takes effect here at once. Native peers get the error within a moment, with `reason`
    /// and this rank as culprit; NCCL peers when they notice. Any thread.
    void abort(std::string_view reason);

private:
    explicit ProcessGroup(std::unique_ptr<detail::GroupImpl> impl);

    friend class detail::GroupImpl;  // makes it
    friend class Checkpointer;       // asks for the generation
    friend class Context;            // asks the ranks of the world where they are
    friend class GradientReducer;    // numbers the steps of its group
    std::unique_ptr<detail::GroupImpl> impl_;
};

}  // namespace ddp

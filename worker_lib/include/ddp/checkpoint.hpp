#pragma once
// Checkpointer: saves and loads parameters so that a file is whole or absent, even if processes are killed at any time.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/context.hpp"
#include "ddp/export.hpp"
#include "ddp/types.hpp"

namespace ddp::detail {
class BackgroundSave;
class SaveFence;
class Staging;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// Memory with a name, which has to be the same for save and load. It may be host memory in one and device memory in
/// the other: the file is the same.
struct NamedBuffer {
    std::string name;  ///< unique in a checkpoint, and not empty
    Buffer buffer;     ///< read by save(), written by load()
};

/// Options of a Checkpointer.
struct CheckpointerOptions {
    int keep = 3;  ///< how many checkpoints to keep, the newest ones; at least 1
};

/// Saves and loads checkpoints in one directory: a file is whole or absent, even if processes are killed at any time.
/// It refers to its group, which must outlive it. One thread at a time.
///
/// A group on NCCL takes host memory and memory of its device, also in one state; one on the native backend takes host
/// memory. `stream` below is the CUDA stream on which the device memory is ready (null: the legacy default stream).
/// Device memory goes through two pieces of pinned memory, 32 MiB each at most, so that the device copies one while the
/// host hashes and writes the other. They are kept for the next call. If a copy, or the work before it on the stream,
/// does not end within the group's timeout, that is Error{System}.
///
/// Every call is collective and fails on all ranks alike. The ranks compare their arguments before a file or a buffer
/// is touched, so a call in a group that has failed changes nothing on disk.
///
/// The directory holds `step-N.ckpt`, during a save `step-N.ckpt.tmp.…`, and under ddprun the empty file
/// `gen-GENERATION.SESSION`, with `.RANDOM` while a Checkpointer exists: do not remove it. If workers of an older
/// generation still run (ddprun freezes or kills them first), their saves fail once a newer generation has made its
/// Checkpointer. Make one and keep it, so that this holds from the load on. On network file systems a save that ends in
/// the same moment may still commit, a whole file. The first save of a job shuts out the other jobs that have a
/// Checkpointer there; a job that only loads shuts out none. Under other launchers every save commits, because their
/// generations have no order: restart counts of torchrun begin at 0 on a new node.
class Checkpointer {
public:
    /// Creates `dir` if it is missing (rank 0 of the group) and removes what older generations of this job left there;
    /// the first save() removes what other jobs left. Throws Error{Io} naming the directory and the cause, and
    /// Error{Superseded} if a newer generation has made its Checkpointer. A directory that is full or read-only is an
    /// error only for save(). The group must outlive this object; after a shrink(), make a new Checkpointer with the
    /// survivors' group.
    Checkpointer(std::filesystem::path dir, ProcessGroup& group, CheckpointerOptions options = {});
    /// The same for the context's world().
    Checkpointer(std::filesystem::path dir, Context& context, CheckpointerOptions options = {});

    /// Saves rank 0's values. Every rank passes the same step, names, types, sizes and devices. Rank 0 writes a
    /// temporary file, fsyncs and renames it, and fsyncs the directory. When all ranks know that the file is written,
    /// all but the newest CheckpointerOptions::keep are removed. The memory may be changed afterwards.
    ///
    /// Throws, before anything is written, Error{Mismatch} naming what differs and on which ranks, or
    /// Error{InvalidArgument} for a state that cannot be stored: null buffers, empty or duplicate names, memory that is
    /// not where it says, a stream of another device or one that is being captured into a graph. Throws Error{Io} when
    /// rank 0 could not write, and Error{Superseded} when a newer generation or another job has taken the directory
    /// over. If the group has failed by the time all values are copied, throws that failure, because they may come from
    /// operations that were aborted. The checkpoints are unchanged in all these cases.
    void save(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});

    /// Does the same, but returns when rank 0 has copied the values to host memory, of which it needs as much as the
    /// state has. The file is written on a thread meanwhile. The next call of any other function waits for that; if it
    /// has failed, that call throws the error on all ranks and does nothing else. The destructor waits, too, and rank 0
    /// prints the error. The older checkpoints are removed by the next call.
    void save_async(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});

    /// Waits until the file of save_async() is written, if one is being written. Throws as save().
    void wait();

    /// Returns the newest step whose file is whole (sizes and checksums), as rank 0 sees it; nothing if there is none.
    [[nodiscard]] std::optional<std::uint64_t> latest();

    /// Loads a checkpoint into `state`: rank 0 reads and broadcasts. Every rank passes the same arguments as to save().
    /// Work that is enqueued afterwards, on any stream, sees the values. Throws Error{Mismatch} when the ranks disagree
    /// or the file holds other names, types or sizes, and Error{InvalidArgument} as save(); no buffer is changed then.
    /// Throws Error{Io} for a file that is absent, unreadable or damaged.
    void load(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});

private:
    std::filesystem::path dir_;
    ProcessGroup* group_;
    int keep_;
    std::shared_ptr<detail::SaveFence> fence_;  ///< on rank 0
    std::shared_ptr<detail::Staging> staging_;  ///< on rank 0, from the first state with device memory on
    std::shared_ptr<detail::BackgroundSave> background_;
};

}  // namespace ddp

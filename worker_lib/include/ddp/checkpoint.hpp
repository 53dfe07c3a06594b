#pragma once
// Checkpointer: saves and loads parameters so that a file is whole or absent, even if processes are killed at any time.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddp/checkpoint_state.hpp"
#include "ddp/context.hpp"
#include "ddp/export.hpp"
#include "ddp/types.hpp"

namespace ddp::detail {
class BackgroundSave;
class Save;
class SaveFence;
class Staging;
}  // namespace ddp::detail

namespace DDP_EXPORT ddp {

/// Options of a Checkpointer.
struct CheckpointerOptions {
    int keep = 3;  ///< how many checkpoints to keep, the newest ones; at least 1
};

/// Saves and loads checkpoints in one directory: a file is whole or absent, even if processes are killed at any time.
/// It refers to its group, which must outlive it. One thread at a time.
///
/// A state is a list of whole tensors that every rank has (NamedBuffer), or of parts (NamedShard). Either is written by
/// all ranks at once into one file of the safetensors format. The ranks divide it into blocks of 1 MiB. Each block is
/// written by a rank that has its first byte, so a file does not depend on the number of ranks, and any other number of
/// them may load it. `__metadata__` has checksums of the blocks, which load() compares.
///
/// The directory should be on a file system that all ranks share. A rank that does not see rank 0's file sends its
/// bytes to ranks that do, which need memory for them, and gets them back in load(). Several hosts must not save to a
/// mounted object store (gcsfuse, s3fs): nothing detects yet that such hosts do not see each other's writes.
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
/// The directory holds `step-N.safetensors` (`step-N.ckpt` if an older version of the library has written it, which can
/// be loaded). save() replaces and removes files of these names, also those of other programs. The directory also
/// holds, during a save, `step-N.safetensors.tmp.…`, and under ddprun the empty file `gen-GENERATION.SESSION`, with
/// `.RANDOM` while a Checkpointer exists: do not remove it. If workers of an older generation still run (ddprun freezes
/// or kills them first), their saves fail once a newer generation has made its Checkpointer. Make one and keep it, so
/// that this holds from the load on. On network file systems a save that ends in the same moment may still commit, a
/// whole file. The first save of a job shuts out the other jobs that have a Checkpointer there; a job that only loads
/// shuts out none. Under other launchers every save commits, because their generations have no order: restart counts of
/// torchrun begin at 0 on a new node.
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

    /// Saves whole tensors. Every rank passes the same step, names, types, sizes and devices, and the same values:
    /// those of a block are taken from the rank that writes it. The ranks write a temporary file and fsync it. When all
    /// have done so, rank 0 writes the header, fsyncs and renames the file, and fsyncs the directory. When all ranks
    /// know that, all but the newest CheckpointerOptions::keep are removed. The memory may be changed afterwards.
    ///
    /// Throws, before anything is written, Error{Mismatch} naming what differs and on which ranks, or
    /// Error{InvalidArgument} for a state that cannot be stored: null buffers, empty or duplicate names, memory that is
    /// not where it says, a stream of another device or one that is being captured into a graph. Throws Error{Io} when
    /// a rank could not write, and Error{Superseded} when a newer generation or another job has taken the directory
    /// over. If the group has failed by the time all values are copied, throws that failure, because they may come from
    /// operations that were aborted. The checkpoints are unchanged in all these cases.
    void save(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});
    /// Does the same with parts. Every rank passes the same step, and tensors of the same names, shapes and types in
    /// the same order. Parts may overlap if they have the same values there: each byte is written once. So replicas
    /// pass equal parts, and a tensor that every rank has is a part from 0 on. Throws also Error{InvalidArgument} for a
    /// part outside its tensor, and naming elements that no rank has.
    void save(std::uint64_t step, List<NamedShard> state, Stream stream = {});

    /// Does the same as save(), but returns when each rank has copied what it writes, about its share of the state, to
    /// host memory, which is kept for the next call. Threads write the file meanwhile. The next call of any other
    /// function waits for that; if it has failed, that call throws the error on all ranks and does nothing else. The
    /// destructor waits, too, and prints the error. The older checkpoints are removed by the next call.
    void save_async(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});
    /// Does the same with parts.
    void save_async(std::uint64_t step, List<NamedShard> state, Stream stream = {});

    /// Waits until the file of save_async() is written, if one is being written. Throws as save().
    void wait();

    /// Returns the newest step whose file is whole (sizes and checksums), as rank 0 sees it; nothing if there is none.
    [[nodiscard]] std::optional<std::uint64_t> latest();

    /// Loads a checkpoint into whole tensors: rank 0 reads and broadcasts. Every rank passes the same arguments as to
    /// save(). Work that is enqueued afterwards, on any stream, sees the values. Throws Error{Mismatch} when the ranks
    /// disagree or the file holds other names, types or sizes, and Error{InvalidArgument} as save(); no buffer is
    /// changed then. Throws Error{Io} for a file that is absent, unreadable or damaged, naming the tensor.
    void load(std::uint64_t step, List<NamedBuffer> state, Stream stream = {});
    /// Loads a checkpoint into parts: each rank reads its own, of a file that any number of ranks has saved, in parts
    /// or whole. Shapes of several dimensions have to be the same, too. Values of a ShardedParameters: see its
    /// changed().
    void load(std::uint64_t step, List<NamedShard> state, Stream stream = {});

private:
    std::shared_ptr<detail::Save> begin_save(std::uint64_t step, std::vector<NamedShard> state, bool is_whole,
                                             Stream stream);
    void save_now(std::uint64_t step, std::vector<NamedShard> state, bool is_whole, Stream stream);
    void save_later(std::uint64_t step, std::vector<NamedShard> state, bool is_whole, Stream stream);

    std::filesystem::path dir_;
    ProcessGroup* group_;
    int keep_;
    std::shared_ptr<detail::SaveFence> fence_;  ///< on rank 0
    std::shared_ptr<detail::Staging> staging_;  ///< from the first state with device memory on
    std::shared_ptr<detail::BackgroundSave> background_;
};

}  // namespace ddp

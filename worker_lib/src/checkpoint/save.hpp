#pragma once
// Save: this rank's side of one save, without collectives. Rank 0 creates the temporary file and commits it; every rank
// that can open it writes its blocks. The file is whole or absent, because its header and its name come last.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/checksums.hpp"
#include "common/system/unique_fd.hpp"
#include "ddp/checkpoint_state.hpp"
#include "worker_lib/src/checkpoint/memory_pieces.hpp"
#include "worker_lib/src/checkpoint/save_fence.hpp"
#include "worker_lib/src/checkpoint/state.hpp"
#include "worker_lib/src/checkpoint/write_plan.hpp"

namespace ddp::detail {

class Save {
public:
    /// Throws Error{InvalidArgument} if the header would be larger than the format allows.
    /// path   of the checkpoint
    /// state  checked; its memory has to stay valid until copy() or write() returns
    Save(std::filesystem::path path, const ddprun::checkpoint::SaveFacts& facts, std::vector<NamedShard> state,
         int rank);
    /// Removes the temporary file if this rank has created and not committed it.
    ~Save();
    Save(const Save&) = delete;
    Save& operator=(const Save&) = delete;

    /// Creates the temporary file and returns its name. Rank 0 only. Throws, like commit(), Error{Io} with a remedy or
    /// Error{Superseded}.
    [[nodiscard]] std::string create(const SaveFence& fence);
    /// Opens the file that rank 0 has created. Returns whether this rank can write to it.
    [[nodiscard]] bool open(const std::string& name);
    /// Chooses what this rank writes and sends.
    void plan(std::span<const OwnedRange> ranges, const std::vector<bool>& can_write);
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const WritePlan& planned() const { return plan_; }

    /// Returns the bytes that this rank sends, by receiver.
    [[nodiscard]] std::vector<std::byte> bytes_to_send(Staging* staging) const;
    /// Returns the memory for the bytes that others send, by sender.
    [[nodiscard]] std::span<std::byte> received() { return received_; }

    /// Returns how many bytes of the state this rank writes.
    [[nodiscard]] std::size_t bytes_to_copy() const;
    /// Copies them to `memory`, which write() uses then instead of the state.
    void copy(std::span<std::byte> memory, Staging* staging);

    /// Writes and fsyncs this rank's blocks, and hashes them. Throws Error{Io} with a remedy, and the errors of
    /// `staging`.
    void write(Staging* staging = nullptr);
    /// Returns the hashes of this rank's chunks.
    [[nodiscard]] const std::vector<std::uint64_t>& hashes() const { return hashes_; }
    /// Returns how many chunks each rank hashes.
    [[nodiscard]] std::vector<std::size_t> chunk_counts(int ranks) const;
    /// Writes the header, fsyncs and renames the file if the fence allows it, fsyncs the directory, and removes the
    /// file of an older format that this step has. Rank 0 only.
    /// hashes   of all ranks, by rank
    void commit(const SaveFence& fence, std::span<const std::uint64_t> hashes);

private:
    [[nodiscard]] int writer_of(const ddprun::checkpoint::Chunk& chunk) const;
    [[nodiscard]] std::vector<std::uint64_t> in_file_order(std::span<const std::uint64_t> hashes) const;
    void write_at(std::span<const std::byte> bytes, std::size_t position) const;
    [[noreturn]] void fail_writing(int errno_value) const;
    [[noreturn]] void abandon(const SaveFence& fence, int errno_value);
    void discard();

    const std::filesystem::path path_;
    const ddprun::checkpoint::SaveFacts facts_;
    const std::vector<NamedShard> state_;
    const int rank_;
    const FileOrder order_;
    const std::vector<ddprun::checkpoint::Chunk> chunks_;
    const std::size_t data_begin_;     ///< in the file
    std::filesystem::path temporary_;  ///< that this rank has created; empty: none
    ddprun::UniqueFd fd_;
    WritePlan plan_;
    std::vector<std::byte> received_;
    std::vector<MemoryRange> sources_;  ///< of plan_.writes
    std::vector<std::uint64_t> hashes_;
};

/// Returns 0 or the errno with which the directory could not be fsynced.
[[nodiscard]] int sync_directory(const std::filesystem::path& directory);

}  // namespace ddp::detail

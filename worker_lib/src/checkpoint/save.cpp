#include "worker_lib/src/checkpoint/save.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>

#include "common/word_hash.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"

namespace ddp::detail {
namespace {

using ddprun::UniqueFd;
using ddprun::checkpoint::Chunk;
using ddprun::checkpoint::kBlockBytes;

constexpr std::size_t kMaxWriteBytes = 16u << 20;  // per call

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

std::string advice(int errno_value, const std::filesystem::path& path, std::size_t needed_bytes) {
    switch (errno_value) {
        case ENOSPC:
        case EDQUOT: {
            struct statvfs fs {};
            const bool known = ::statvfs(path.parent_path().c_str(), &fs) == 0;
            const std::string free =
                known ? megabytes(std::uint64_t{fs.f_bavail} * fs.f_frsize) + " free" : "free: unknown";
            return fmt::format(" (needs {}, {}). Free space there or pass another checkpoint directory",
                               megabytes(needed_bytes), free);
        }
        case EFBIG:
            return fmt::format(" (needs {}). Raise the limit of file sizes (ulimit -f)", megabytes(needed_bytes));
        case EACCES:
        case EPERM:
        case EROFS: return ". Make the directory writable for this user or pass another checkpoint directory";
        case ENOENT: return ". Was the directory, or the temporary file in it, removed while the job ran?";
        default: return "";
    }
}

/// Some file systems report a full disk only when a file is closed. Returns 0 or the errno.
int close_checked(UniqueFd& fd) { return ::close(fd.release()) == 0 ? 0 : errno; }

}  // namespace

int sync_directory(const std::filesystem::path& directory) {
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return errno;
    // EINVAL: this file system has no fsync of directories, and keeps renames in order by itself.
    return ::fsync(fd.get()) == 0 || errno == EINVAL ? 0 : errno;
}

Save::Save(std::filesystem::path path, const ddprun::checkpoint::SaveFacts& facts, std::vector<NamedShard> state,
           int rank)
    : path_(std::move(path)),
      facts_(facts),
      state_(std::move(state)),
      rank_(rank),
      order_(order_of(state_)),
      chunks_(ddprun::checkpoint::chunks_of(order_.tensors)),
      data_begin_(ddprun::checkpoint::encode_checkpoint(facts_, order_.tensors, {}).size()) {
    const std::size_t header_bytes = data_begin_ - ddprun::checkpoint::kLengthBytes;
    if (header_bytes > ddprun::checkpoint::kMaxHeaderBytes)
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("cannot save checkpoint {}: its header would have {} bytes, and safetensors allows {}. "
                                "Pass fewer tensors, shorter names or less data, or use several checkpoint directories",
                                path_.string(), header_bytes, ddprun::checkpoint::kMaxHeaderBytes));
}

Save::~Save() { discard(); }

void Save::discard() {
    if (temporary_.empty()) return;
    ::unlink(temporary_.c_str());  // what stays costs only room
    temporary_.clear();
}

void Save::fail_writing(int errno_value) const {
    const std::size_t data_bytes = order_.tensors.empty() ? 0 : order_.tensors.back().end();
    throw Error(ErrorCode::Io,
                fmt::format("cannot write checkpoint {}: {}{}", path_.string(), std::strerror(errno_value),
                            advice(errno_value, path_, data_begin_ + data_bytes)));
}

void Save::abandon(const SaveFence& fence, int errno_value) {
    fd_.reset();
    discard();  // before fail_writing() looks up the free space
    fence.refuse_superseded(path_);
    fail_writing(errno_value);
}

std::string Save::create(const SaveFence& fence) {
    const auto temporary = fence.temporary_path(path_);
    fd_ = UniqueFd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd_) abandon(fence, errno);
    temporary_ = temporary;
    const std::size_t data_bytes = order_.tensors.empty() ? 0 : order_.tensors.back().end();
    if (::ftruncate(fd_.get(), static_cast<off_t>(data_begin_ + data_bytes)) != 0) abandon(fence, errno);
    return temporary.filename().string();
}

bool Save::open(const std::string& name) {
    if (!temporary_.empty()) return true;
    fd_ = UniqueFd(::open((path_.parent_path() / name).c_str(), O_WRONLY | O_CLOEXEC));
    return static_cast<bool>(fd_);
}

void Save::plan(std::span<const OwnedRange> ranges, const std::vector<bool>& can_write) {
    plan_ = plan_writes(order_.tensors, order_.in_state, ranges, rank_, can_write);
    received_.resize(std::accumulate(plan_.receive_bytes.begin(), plan_.receive_bytes.end(), std::size_t{0}));
    sources_.clear();
    for (const Run& run : plan_.writes) {
        if (run.tensor == Run::kReceived) {
            sources_.push_back({received_.data() + run.offset, run.bytes, false});
        } else {
            const NamedShard& shard = state_[run.tensor];
            sources_.push_back(range_of(shard.part, run.offset - shard.begin * size_of(shard.part.dtype), run.bytes));
        }
    }
}

std::vector<std::byte> Save::bytes_to_send(Staging* staging) const {
    std::vector<MemoryRange> ranges;
    for (const Run& run : plan_.sends) {
        const NamedShard& shard = state_[run.tensor];
        ranges.push_back(range_of(shard.part, run.offset - shard.begin * size_of(shard.part.dtype), run.bytes));
    }
    std::vector<std::byte> bytes;
    bytes.reserve(std::accumulate(plan_.send_bytes.begin(), plan_.send_bytes.end(), std::size_t{0}));
    read_memory(ranges, staging, [&](std::size_t, std::size_t, std::span<const std::byte> values) {
        bytes.insert(bytes.end(), values.begin(), values.end());
    });
    return bytes;
}

std::size_t Save::bytes_to_copy() const {
    std::size_t bytes = 0;
    for (const Run& run : plan_.writes)
        if (run.tensor != Run::kReceived) bytes += run.bytes;
    return bytes;
}

void Save::copy(std::span<std::byte> memory, Staging* staging) {
    std::vector<MemoryRange> from;
    std::vector<std::size_t> index;  // in sources_
    for (std::size_t i = 0; i < sources_.size(); ++i) {
        if (plan_.writes[i].tensor == Run::kReceived) continue;
        from.push_back(sources_[i]);
        index.push_back(i);
        sources_[i] = {memory.data(), sources_[i].bytes, false};
        memory = memory.subspan(sources_[i].bytes);
    }
    read_memory(from, staging, [&](std::size_t range, std::size_t offset, std::span<const std::byte> values) {
        std::memcpy(sources_[index[range]].data + offset, values.data(), values.size());
    });
}

void Save::write_at(std::span<const std::byte> bytes, std::size_t position) const {
    while (!bytes.empty()) {
        const ssize_t written =
            ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWriteBytes), static_cast<off_t>(position));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            const int error = errno;
            // The save has failed on all ranks. Unless others write on, the room counts as free again before
            // fail_writing() looks it up.
            [[maybe_unused]] const int ignored = ::ftruncate(fd_.get(), 0);
            fail_writing(error);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        position += static_cast<std::size_t>(written);
    }
}

int Save::writer_of(const Chunk& chunk) const { return plan_.writers[chunk.begin / kBlockBytes]; }

void Save::write(Staging* staging) {
    std::vector<Chunk> own;
    std::ranges::copy_if(chunks_, std::back_inserter(own),
                         [&](const Chunk& chunk) { return writer_of(chunk) == rank_; });
    hashes_.clear();
    ddprun::WordHash64 hash;
    read_memory(sources_, staging, [&](std::size_t range, std::size_t offset, std::span<const std::byte> values) {
        std::size_t position = plan_.writes[range].position + offset;
        while (!values.empty()) {
            const Chunk& chunk = own[hashes_.size()];
            const auto now = values.first(std::min(values.size(), chunk.end() - position));
            hash.add(now);
            write_at(now, data_begin_ + position);
            position += now.size();
            values = values.subspan(now.size());
            if (position < chunk.end()) continue;
            hashes_.push_back(hash.value());
            hash = {};
        }
    });
    if (!fd_ || own.empty()) return;
    if (::fsync(fd_.get()) != 0) fail_writing(errno);
    if (!temporary_.empty()) return;  // commit() writes to it
    if (const int error = close_checked(fd_)) fail_writing(error);
}

std::vector<std::size_t> Save::chunk_counts(int ranks) const {
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
    for (const Chunk& chunk : chunks_) ++counts[static_cast<std::size_t>(writer_of(chunk))];
    return counts;
}

std::vector<std::uint64_t> Save::in_file_order(std::span<const std::uint64_t> hashes) const {
    const int ranks = chunks_.empty() ? 1 : 1 + *std::ranges::max_element(plan_.writers);
    const std::vector<std::size_t> counts = chunk_counts(ranks);
    std::vector<std::size_t> next(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), next.begin(), std::size_t{0});
    std::vector<std::uint64_t> ordered;
    for (const Chunk& chunk : chunks_) ordered.push_back(hashes[next[static_cast<std::size_t>(writer_of(chunk))]++]);
    return ordered;
}

void Save::commit(const SaveFence& fence, std::span<const std::uint64_t> hashes) {
    const std::string header = ddprun::checkpoint::encode_checkpoint(facts_, order_.tensors, in_file_order(hashes));
    write_at(std::as_bytes(std::span(header)), 0);
    if (::fsync(fd_.get()) != 0) abandon(fence, errno);
    if (const int error = close_checked(fd_)) abandon(fence, error);
    int error = fence.look_for_marker();
    if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
    if (error != 0) abandon(fence, error);
    temporary_.clear();
    if (const int sync_error = sync_directory(path_.parent_path())) fail_writing(sync_error);
    // latest() looks at one file of each step: were this one damaged later, the old one would not be used anyway.
    ::unlink(old_checkpoint_path(path_.parent_path(), facts_.step).c_str());
}

}  // namespace ddp::detail

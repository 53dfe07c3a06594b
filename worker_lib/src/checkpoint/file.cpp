#include "worker_lib/src/checkpoint/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/state_pieces.hpp"

namespace ddp::detail {
namespace {

using ddprun::UniqueFd;

constexpr std::size_t kMaxTransferBytes = 16u << 20;  // per read or write; also the memory that find_damage needs

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

[[noreturn]] void fail_writing(const std::filesystem::path& path, std::size_t needed_bytes, int errno_value) {
    throw Error(ErrorCode::Io, fmt::format("cannot write checkpoint {}: {}{}", path.string(),
                                           std::strerror(errno_value), advice(errno_value, path, needed_bytes)));
}

[[noreturn]] void fail_reading(const std::filesystem::path& path, int errno_value) {
    throw Error(ErrorCode::Io, fmt::format("cannot read checkpoint {}: {}", path.string(), std::strerror(errno_value)));
}

[[noreturn]] void fail_with_errno() { throw std::system_error(errno, std::generic_category()); }

/// Writes all bytes at the file's position. Throws std::system_error, as the functions below do.
void write_all(int fd, const void* data, std::size_t bytes) {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(fd, next, std::min(bytes, kMaxTransferBytes));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_with_errno();
        next += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

void seek(int fd, std::size_t position) {
    if (::lseek(fd, static_cast<off_t>(position), SEEK_SET) < 0) fail_with_errno();
}

/// Writes the tensors, and then the head, which has their hashes.
void write_everything(int fd, Manifest manifest, std::span<const NamedBuffer> state, Staging* staging) {
    const std::size_t head_length = encode(manifest).size();
    const std::string padding(kTensorAlignBytes, '\0');
    std::size_t position = head_length;
    seek(fd, position);
    TensorHash hash(manifest.version);
    read_state(state, staging, [&](const Piece& piece, std::span<const std::byte> values) {
        hash.add(values);
        write_all(fd, values.data(), values.size());
        position += values.size();
        if (!piece.is_last) return;
        manifest.entries[piece.tensor].hash = hash.value();
        hash = TensorHash(manifest.version);
        const std::size_t gap = (kTensorAlignBytes - position % kTensorAlignBytes) % kTensorAlignBytes;
        write_all(fd, padding.data(), gap);
        position += gap;
    });
    const std::string head = encode(manifest);
    seek(fd, 0);
    write_all(fd, head.data(), head.size());
    if (::fsync(fd) != 0) fail_with_errno();
}

/// Creates, fills and closes the file. Some file systems report a full disk only when it is closed.
void write_file(const std::filesystem::path& path, const Manifest& manifest, std::span<const NamedBuffer> state,
                Staging* staging) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) fail_with_errno();
    write_everything(fd.get(), manifest, state, staging);
    if (::close(fd.release()) != 0) fail_with_errno();
}

/// Returns 0 or the errno of the failure.
int sync_directory(const std::filesystem::path& directory) {
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return errno;
    // EINVAL: this file system has no fsync of directories, and keeps renames in order by itself.
    return ::fsync(fd.get()) == 0 || errno == EINVAL ? 0 : errno;
}

/// An open checkpoint and its manifest. `damage` is empty unless something wrong was found.
struct OpenFile {
    UniqueFd fd;
    Manifest manifest;
    std::string damage;
};

/// Reads up to `bytes` and returns how many: fewer at the end of the file. Throws Error{Io}.
std::size_t read_at(const std::filesystem::path& path, int fd, void* data, std::size_t bytes, std::size_t offset) {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(fd, static_cast<char*>(data) + done, std::min(bytes - done, kMaxTransferBytes),
                                    static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_reading(path, errno);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

OpenFile open_checkpoint(const std::filesystem::path& path, std::uint64_t step) {
    // O_NONBLOCK, because the open of a named pipe would wait for its writer.
    OpenFile file{
        .fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)), .manifest = {}, .damage = {}};
    struct stat status {};
    if (!file.fd && errno == ENOENT && ::lstat(path.c_str(), &status) == 0) {
        file.damage = "it is a link to a file that does not exist";
        return file;
    }
    if (!file.fd || ::fstat(file.fd.get(), &status) != 0) fail_reading(path, errno);
    if (!S_ISREG(status.st_mode)) {
        file.damage = "it is not a regular file";
        return file;
    }

    std::string head(kPreambleBytes, '\0');
    head.resize(read_at(path, file.fd.get(), head.data(), head.size(), 0));
    const auto length = head_bytes(head);
    if (!length) {
        file.damage = "it does not begin like a checkpoint";
        return file;
    }
    head.resize(*length);
    head.resize(read_at(path, file.fd.get(), head.data(), head.size(), 0));
    auto manifest = decode(head);
    const auto size = static_cast<std::size_t>(status.st_size);
    if (!manifest) {
        file.damage = "its head is damaged";
    } else if (manifest->file_bytes != size) {
        file.damage = fmt::format("it has {} bytes instead of {}", size, manifest->file_bytes);
    } else if (manifest->step != step) {
        file.damage = fmt::format("it is of step {}", manifest->step);
    } else {
        file.manifest = std::move(*manifest);
    }
    return file;
}

[[noreturn]] void abandon(const std::filesystem::path& temporary, const std::filesystem::path& path,
                          const SaveFence& fence, std::size_t needed_bytes, int errno_value) {
    discard(temporary);  // before fail_writing() looks up the free space
    fence.refuse_superseded(path);
    fail_writing(path, needed_bytes, errno_value);
}

std::string damaged_tensor(const ManifestEntry& entry) {
    return fmt::format("the checksum of '{}' is wrong", entry.name);
}

}  // namespace

std::filesystem::path write_temporary(const std::filesystem::path& path, const SaveFence& fence,
                                      const Manifest& manifest, std::span<const NamedBuffer> state, Staging* staging) {
    auto temporary = fence.temporary_path(path);
    try {
        write_file(temporary, manifest, state, staging);
    } catch (const std::system_error& error) {
        abandon(temporary, path, fence, manifest.file_bytes, error.code().value());
    } catch (...) {
        discard(temporary);
        throw;
    }
    return temporary;
}

// What stays costs only room.
void discard(const std::filesystem::path& temporary) { ::unlink(temporary.c_str()); }

void commit(const std::filesystem::path& temporary, const std::filesystem::path& path, const SaveFence& fence,
            const Manifest& manifest) {
    int error = fence.look_for_marker();
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) abandon(temporary, path, fence, manifest.file_bytes, error);
    if (const int sync_error = sync_directory(path.parent_path())) fail_writing(path, manifest.file_bytes, sync_error);
}

std::string find_damage(const std::filesystem::path& path, std::uint64_t step) {
    const OpenFile file = open_checkpoint(path, step);
    if (!file.damage.empty()) return file.damage;
    std::vector<std::byte> piece(kMaxTransferBytes);
    for (const ManifestEntry& entry : file.manifest.entries) {
        TensorHash hash(file.manifest.version);
        for (std::size_t done = 0; done < entry.bytes(); done += piece.size()) {
            const std::size_t wanted = std::min(piece.size(), entry.bytes() - done);
            const std::size_t got = read_at(path, file.fd.get(), piece.data(), wanted, entry.offset_bytes + done);
            hash.add({piece.data(), got});
        }
        if (hash.value() != entry.hash) return damaged_tensor(entry);
    }
    return {};
}

void read_checkpoint(const std::filesystem::path& path, std::uint64_t step, std::span<const NamedBuffer> state,
                     Staging* staging) {
    const OpenFile file = open_checkpoint(path, step);
    const auto refuse_damaged = [&](const std::string& damage) {
        throw Error(ErrorCode::Io,
                    fmt::format("cannot load checkpoint {}: {}. Remove it; an older one will be used then",
                                path.string(), damage));
    };
    if (!file.damage.empty()) refuse_damaged(file.damage);
    if (const std::string why = difference(file.manifest, state); !why.empty()) {
        throw Error(
            ErrorCode::Mismatch,
            fmt::format("cannot load checkpoint {}: {}. Build the model with the sizes that it was saved with, or pass "
                        "another checkpoint directory",
                        path.string(), why));
    }
    TensorHash hash(file.manifest.version);
    write_state(state, staging, [&](const Piece& piece, std::span<std::byte> values) {
        const ManifestEntry& entry = file.manifest.entries[piece.tensor];
        const std::size_t got =
            read_at(path, file.fd.get(), values.data(), values.size(), entry.offset_bytes + piece.offset_bytes);
        hash.add(values);
        const bool is_damaged = got != values.size() || (piece.is_last && hash.value() != entry.hash);
        if (is_damaged) refuse_damaged(damaged_tensor(entry));
        if (piece.is_last) hash = TensorHash(file.manifest.version);
    });
}

}  // namespace ddp::detail

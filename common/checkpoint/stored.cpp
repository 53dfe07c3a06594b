#include "common/checkpoint/stored.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "common/checkpoint/old_format.hpp"
#include "common/fnv.hpp"
#include "common/text/escape.hpp"
#include "common/word_hash.hpp"

namespace ddprun::checkpoint {
namespace {

Error damage(std::string text) { return {Errc::kMalformed, std::move(text)}; }
Error failed_call(int error) {
    const boost::system::error_code code(error, boost::system::system_category());
    return {code, std::generic_category().message(error)};
}

/// Reads up to `bytes` and returns how many: fewer at the end of the file.
Result<std::size_t> read_at(int fd, void* data, std::size_t bytes, std::size_t offset) {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got =
            ::pread(fd, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed_call(errno);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

/// Reads the first bytes of the file: fewer than asked for at its end.
Result<std::string> read_beginning(int fd, std::size_t bytes) {
    std::string text(bytes, '\0');
    const auto got = read_at(fd, text.data(), bytes, 0);
    if (!got) return got.error();
    text.resize(*got);
    return text;
}

std::uint64_t hash_of_head(std::string_view text) {
    WordHash64 hash;
    hash.add(std::as_bytes(std::span(text)));
    return hash.value();
}

Result<void> read_old(StoredCheckpoint& file, std::size_t head_bytes, std::size_t file_bytes) {
    const auto text = read_beginning(file.fd.get(), std::min(head_bytes, file_bytes));
    if (!text) return text.error();
    auto head = decode_old(*text);
    if (!head) return damage("its head is damaged");
    if (head->file_bytes != file_bytes)
        return damage(fmt::format("it has {} bytes instead of {}", file_bytes, head->file_bytes));
    file.version = head->version;
    file.head_hash = hash_of_head(*text);
    file.facts = {head->step, head->world_size, 0};
    file.tensors = std::move(head->tensors);
    file.chunks = std::move(head->chunks);
    return {};
}

Result<void> read_safetensors(StoredCheckpoint& file, std::string_view first_bytes, std::size_t file_bytes) {
    const auto length = json_bytes(first_bytes, file_bytes);
    if (!length) return length.error();
    const std::size_t data_begin = kLengthBytes + *length;
    const auto text = read_beginning(file.fd.get(), data_begin);
    if (!text) return text.error();
    if (text->size() < data_begin) return damage("it became shorter while it was read");
    auto header = decode(std::string_view(*text).substr(kLengthBytes), file_bytes - data_begin);
    if (!header) return header.error();
    file.head_hash = hash_of_head(*text);
    if (has_checksums(*header)) {
        auto checksums = checksums_of(*header, *text);
        if (!checksums) return checksums.error();
        file.version = kVersion;
        file.facts = checksums->facts;
        file.chunks = std::move(checksums->chunks);
    }
    file.tensors = std::move(header->tensors);
    for (Tensor& tensor : file.tensors) tensor.begin += data_begin;
    for (Chunk& chunk : file.chunks) chunk.begin += data_begin;
    return {};
}

/// Hashes as a version of the format does.
class ChunkHash {
public:
    explicit ChunkHash(int version) : is_fnv_(version == 1) {}
    void add(std::span<const std::byte> bytes) { is_fnv_ ? fnv_.add(bytes) : words_.add(bytes); }
    [[nodiscard]] std::uint64_t value() const { return is_fnv_ ? fnv_.value() : words_.value(); }

private:
    bool is_fnv_;
    Fnv64 fnv_;
    WordHash64 words_;
};

}  // namespace

Result<StoredCheckpoint> open_checkpoint(const std::filesystem::path& path) {
    // O_NONBLOCK, because the open of a named pipe would wait for its writer.
    StoredCheckpoint file{.fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)),
                          .version = 0,
                          .facts = {},
                          .tensors = {},
                          .chunks = {},
                          .head_hash = 0};
    struct stat status {};
    if (!file.fd && errno == ENOENT && ::lstat(path.c_str(), &status) == 0)
        return damage("it is a link to a file that does not exist");
    if (!file.fd || ::fstat(file.fd.get(), &status) != 0) return failed_call(errno);
    if (!S_ISREG(status.st_mode)) return damage("it is not a regular file");
    const auto file_bytes = static_cast<std::size_t>(status.st_size);
    const auto first_bytes = read_beginning(file.fd.get(), kPreambleBytes);
    if (!first_bytes) return first_bytes.error();
    const auto old_bytes = old_head_bytes(*first_bytes);
    const Result<void> read =
        old_bytes ? read_old(file, *old_bytes, file_bytes) : read_safetensors(file, *first_bytes, file_bytes);
    if (!read) return read.error();
    return file;
}

Result<void> read_chunk(const StoredCheckpoint& file, const Chunk& chunk, std::span<std::byte> scratch,
                        const UseBytes& use) {
    ChunkHash hash(file.version);
    for (std::size_t begin = chunk.begin; begin < chunk.end();) {
        const auto piece = scratch.first(std::min(scratch.size(), chunk.end() - begin));
        const auto got = read_at(file.fd.get(), piece.data(), piece.size(), begin);
        if (!got) return got.error();
        if (*got < piece.size()) return damage("it became shorter while it was read");
        hash.add(piece);
        use(begin, piece);
        begin += piece.size();
    }
    if (hash.value() == chunk.hash) return {};
    return damage(fmt::format("the checksum of '{}' is wrong", log_line(file.tensors[chunk.tensor].name, 200)));
}

Result<void> verify(const StoredCheckpoint& file) {
    std::vector<std::byte> scratch(kBlockBytes);
    for (const Chunk& chunk : file.chunks) {
        if (const auto read = read_chunk(file, chunk, scratch, [](std::size_t, std::span<const std::byte>) {}); !read)
            return read.error();
    }
    return {};
}

}  // namespace ddprun::checkpoint

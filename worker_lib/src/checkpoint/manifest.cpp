// The format:
//     ddp-checkpoint 2 head 0000000256 …       64 bytes: version, length of the whole head, spaces, a newline
//     step 200
//     world_size 8
//     file_bytes 33554432
//     tensor f32 8192 0x9ae16a3b2f90404f 256 embedding            type, count, TensorHash, offset, name
//     end 0xcbf29ce484222325                   FNV-1a of everything before this line
// then spaces up to the first tensor. Numbers are decimal unless they begin with 0x; tensors are little-endian.

#include "worker_lib/src/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <limits>
#include <set>

#include "ddp/error.hpp"
#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "the checkpoint format is little-endian");

std::size_t round_up(std::size_t value) {
    return (value + kTensorAlignBytes - 1) / kTensorAlignBytes * kTensorAlignBytes;
}

std::string shape(std::string_view name, DType dtype, std::size_t count) {
    return fmt::format("'{}' {}[{}]", name, to_string(dtype), count);
}

void check(const NamedBuffer& named, Backend backend, std::set<std::string_view>& seen) {
    const auto refuse = [&](std::string_view why) {
        throw Error(ErrorCode::InvalidArgument, fmt::format("cannot checkpoint '{}': {}", named.name, why));
    };
    if (named.name.empty()) refuse("a tensor needs a name");
    for (const char c : named.name) {
        if (static_cast<unsigned char>(c) < 0x20) refuse("the name contains a control character");
    }
    if (!seen.insert(named.name).second) refuse("two tensors have this name");
    const bool on_device = named.buffer.device != Device::Cpu;
    if (on_device && backend == Backend::Native)
        refuse(
            "it is device memory, and this group is on the native backend, which takes host memory only. Copy it to "
            "the host first, or use Backend::Nccl");
    const Backend taken_by = on_device ? Backend::Nccl : Backend::Native;
    if (const auto wrong = buffer_complaint(named.buffer, "buffer", taken_by); !wrong.empty()) refuse(wrong);
}

std::string preamble(int version, std::size_t length) {
    const std::string text = fmt::format("ddp-checkpoint {} head {:010}", version, length);
    return fmt::format("{:<{}}\n", text, kPreambleBytes - 1);
}

/// Returns all lines but the last, for a head of `length` bytes.
std::string body(const Manifest& manifest, std::size_t length) {
    std::string text = preamble(manifest.version, length);
    text +=
        fmt::format("step {}\nworld_size {}\nfile_bytes {}\n", manifest.step, manifest.world_size, manifest.file_bytes);
    for (const ManifestEntry& e : manifest.entries) {
        text +=
            fmt::format("tensor {} {} {:#018x} {} {}\n", to_string(e.dtype), e.count, e.hash, e.offset_bytes, e.name);
    }
    return text;
}

std::string last_line(std::string_view text) {
    ddprun::Fnv64 fnv;
    fnv.add(text);
    return fmt::format("end {:#018x}\n", fnv.value());
}

/// Reads words and numbers from the front of a text. After anything unexpected good() stays false.
class Scanner {
public:
    explicit Scanner(std::string_view text) : rest_(text) {}

    bool accept(std::string_view word) {
        const bool here = rest_.starts_with(word);
        if (here) rest_.remove_prefix(word.size());
        return here;
    }
    void expect(std::string_view word) { good_ = accept(word) && good_; }

    std::string_view until(char end) {
        const std::size_t length = rest_.find(end);
        if (length == std::string_view::npos) {
            good_ = false;
            return {};
        }
        const std::string_view text = rest_.substr(0, length);
        rest_.remove_prefix(length + 1);
        return text;
    }
    std::uint64_t number(char end) {
        std::string_view digits = until(end);
        const bool hex = digits.starts_with("0x");
        if (hex) digits.remove_prefix(2);
        std::uint64_t value = 0;
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
        good_ = good_ && error == std::errc() && stop == digits.data() + digits.size();
        return value;
    }
    DType dtype(char end) {
        const std::string_view word = until(end);
        for (int i = 0; i <= static_cast<int>(DType::F64); ++i) {
            if (to_string(static_cast<DType>(i)) == word) return static_cast<DType>(i);
        }
        good_ = false;
        return DType::F32;
    }
    void fail_unless(bool condition) { good_ = good_ && condition; }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] std::string_view rest() const { return rest_; }

private:
    std::string_view rest_;
    bool good_ = true;
};

ManifestEntry read_entry(Scanner& scanner) {
    ManifestEntry entry;
    entry.dtype = scanner.dtype(' ');
    entry.count = scanner.number(' ');
    entry.hash = scanner.number(' ');
    entry.offset_bytes = scanner.number(' ');
    entry.name = scanner.until('\n');
    scanner.fail_unless(entry.count <= std::numeric_limits<std::size_t>::max() / size_of(entry.dtype));
    return entry;
}

/// Returns whether the tensors follow one another inside the file, aligned, so that no offset leads outside it.
bool is_consistent(const Manifest& manifest, std::size_t head_length) {
    std::size_t next = head_length;
    for (const ManifestEntry& entry : manifest.entries) {
        if (next > manifest.file_bytes || entry.bytes() > manifest.file_bytes - next) return false;
        if (entry.offset_bytes != next) return false;
        next = round_up(next + entry.bytes());
    }
    return next == manifest.file_bytes;
}

}  // namespace

void check_state(std::span<const NamedBuffer> state, Backend backend) {
    std::set<std::string_view> seen;
    for (const NamedBuffer& named : state) check(named, backend, seen);
}

std::string describe(std::size_t i, const NamedBuffer& named) {
    return fmt::format("tensor {} {}{}", i, shape(named.name, named.buffer.dtype, named.buffer.count),
                       named.buffer.device == Device::Cuda ? " on cuda" : "");
}

Manifest make_manifest(std::uint64_t step, int world_size, std::span<const NamedBuffer> state) {
    Manifest manifest{.step = step, .world_size = world_size, .entries = {}, .file_bytes = 0};
    std::size_t data_bytes = 0;
    for (const NamedBuffer& named : state) {
        manifest.entries.push_back({.name = named.name,
                                    .dtype = named.buffer.dtype,
                                    .count = named.buffer.count,
                                    .hash = 0,
                                    .offset_bytes = data_bytes});
        data_bytes += round_up(named.buffer.bytes());
    }
    // The offsets depend on the length of the head, which they are part of. So each number gets room for the maximum
    // of digits. Hashes have a fixed length.
    constexpr std::size_t kDigits = std::numeric_limits<std::size_t>::digits10 + 1;
    const std::size_t head =
        round_up(body(manifest, 0).size() + last_line({}).size() + (manifest.entries.size() + 1) * kDigits);
    for (ManifestEntry& entry : manifest.entries) entry.offset_bytes += head;
    manifest.file_bytes = head + data_bytes;
    return manifest;
}

std::string encode(const Manifest& manifest) {
    const std::size_t length = manifest.entries.empty() ? manifest.file_bytes : manifest.entries.front().offset_bytes;
    std::string text = body(manifest, length);
    text += last_line(text);
    text.resize(length, ' ');
    return text;
}

namespace {

/// Reads the beginning of the first line; fails for a version that this program does not know.
int read_version(Scanner& scanner) {
    scanner.expect("ddp-checkpoint ");
    const std::uint64_t version = scanner.number(' ');
    scanner.fail_unless(version >= 1 && version <= kFormatVersion);
    scanner.expect("head ");
    return static_cast<int>(version);
}

}  // namespace

std::optional<std::size_t> head_bytes(std::string_view preamble_text) {
    Scanner scanner(preamble_text);
    read_version(scanner);
    const std::size_t length = scanner.number(' ');
    if (!scanner.good() || length < kPreambleBytes || length > kMaxHeadBytes) return std::nullopt;
    return length;
}

std::optional<Manifest> decode(std::string_view head) {
    if (head_bytes(head) != head.size()) return std::nullopt;
    Scanner scanner(head);
    Manifest manifest;
    manifest.version = read_version(scanner);
    scanner.until('\n');
    scanner.expect("step ");
    manifest.step = scanner.number('\n');
    scanner.expect("world_size ");
    manifest.world_size = static_cast<int>(scanner.number('\n'));
    scanner.expect("file_bytes ");
    manifest.file_bytes = scanner.number('\n');
    while (scanner.good() && scanner.accept("tensor ")) manifest.entries.push_back(read_entry(scanner));
    const std::size_t body_size = head.size() - scanner.rest().size();
    scanner.expect(last_line(head.substr(0, body_size)));
    scanner.fail_unless(scanner.rest().find_first_not_of(' ') == std::string_view::npos);
    if (!scanner.good() || !is_consistent(manifest, head.size())) return std::nullopt;
    return manifest;
}

std::string difference(const Manifest& manifest, std::span<const NamedBuffer> state) {
    for (std::size_t i = 0; i < std::max(manifest.entries.size(), state.size()); ++i) {
        std::string there = "nothing";
        std::string here = "nothing";
        if (i < manifest.entries.size()) {
            const ManifestEntry& entry = manifest.entries[i];
            there = shape(entry.name, entry.dtype, entry.count);
        }
        if (i < state.size()) here = shape(state[i].name, state[i].buffer.dtype, state[i].buffer.count);
        if (there != here) return fmt::format("tensor {} in the file is {}, in this program {}", i, there, here);
    }
    return {};
}

}  // namespace ddp::detail

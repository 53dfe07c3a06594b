// The format:
//     ddp-checkpoint 2 head 0000000256 …       64 bytes: version, length of the whole head, spaces, a newline
//     step 200
//     world_size 8
//     file_bytes 33554432
//     tensor f32 8192 0x9ae16a3b2f90404f 256 embedding            type, count, hash, offset, name
//     end 0xcbf29ce484222325                   FNV-1a of everything before this line
// then spaces up to the first tensor. Numbers are decimal unless they begin with 0x. Tensors are little-endian, and
// begin at multiples of 128 bytes. The hash of a tensor is its WordHash64; in version 1 FNV-1a.

#include "common/checkpoint/old_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <string>

#include "common/fnv.hpp"

namespace ddprun::checkpoint {
namespace {

constexpr std::size_t kTensorAlignBytes = 128;

std::size_t round_up(std::size_t value) {
    return (value + kTensorAlignBytes - 1) / kTensorAlignBytes * kTensorAlignBytes;
}

std::string last_line(std::string_view text) {
    Fnv64 fnv;
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
    void fail_unless(bool condition) { good_ = good_ && condition; }
    [[nodiscard]] bool good() const { return good_; }
    [[nodiscard]] std::string_view rest() const { return rest_; }

private:
    std::string_view rest_;
    bool good_ = true;
};

void read_tensor(Scanner& scanner, OldHead& head) {
    Tensor tensor{.name = {}, .dtype = std::string(scanner.until(' ')), .shape = {}, .begin = 0, .bytes = 0};
    std::ranges::transform(tensor.dtype, tensor.dtype.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const std::size_t element = element_bytes(tensor.dtype);
    const std::size_t count = scanner.number(' ');
    const std::uint64_t hash = scanner.number(' ');
    tensor.begin = scanner.number(' ');
    tensor.name = scanner.until('\n');
    scanner.fail_unless(element != 0 && count <= std::numeric_limits<std::size_t>::max() / element);
    tensor.shape = {count};
    tensor.bytes = count * element;
    head.chunks.push_back({head.tensors.size(), tensor.begin, tensor.bytes, hash});
    head.tensors.push_back(std::move(tensor));
}

/// Returns whether the tensors follow one another inside the file, aligned, so that no offset leads outside it.
bool is_consistent(const OldHead& head, std::size_t head_length) {
    std::size_t next = head_length;
    for (const Tensor& tensor : head.tensors) {
        if (next > head.file_bytes || tensor.bytes > head.file_bytes - next) return false;
        if (tensor.begin != next) return false;
        next = round_up(next + tensor.bytes);
    }
    return next == head.file_bytes;
}

/// Reads the beginning of the first line; fails for a version that this program does not know.
int read_version(Scanner& scanner) {
    scanner.expect("ddp-checkpoint ");
    const std::uint64_t version = scanner.number(' ');
    scanner.fail_unless(version == 1 || version == 2);
    scanner.expect("head ");
    return static_cast<int>(version);
}

}  // namespace

std::optional<std::size_t> old_head_bytes(std::string_view preamble) {
    Scanner scanner(preamble);
    read_version(scanner);
    const std::size_t length = scanner.number(' ');
    if (!scanner.good() || length < kPreambleBytes || length > kMaxOldHeadBytes) return std::nullopt;
    return length;
}

std::optional<OldHead> decode_old(std::string_view text) {
    if (old_head_bytes(text) != text.size()) return std::nullopt;
    Scanner scanner(text);
    OldHead head;
    head.version = read_version(scanner);
    scanner.until('\n');
    scanner.expect("step ");
    head.step = scanner.number('\n');
    scanner.expect("world_size ");
    head.world_size = scanner.number('\n');
    scanner.expect("file_bytes ");
    head.file_bytes = scanner.number('\n');
    while (scanner.good() && scanner.accept("tensor ")) read_tensor(scanner, head);
    const std::size_t body_size = text.size() - scanner.rest().size();
    scanner.expect(last_line(text.substr(0, body_size)));
    scanner.fail_unless(scanner.rest().find_first_not_of(' ') == std::string_view::npos);
    if (!scanner.good() || !is_consistent(head, text.size())) return std::nullopt;
    return head;
}

}  // namespace ddprun::checkpoint

// Fuzz target: the bytes of a safetensors file, to the reader of checkpoints. What is accepted is accepted by another
// JSON parser, has tensors end to end inside the data, and is the same after it was written again. The reader takes
// memory in proportion to the file.
#include <sanitizer/allocator_interface.h>

#include <boost/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/checkpoint/checksums.hpp"
#include "common/checkpoint/safetensors.hpp"
#include "tests/fuzz/check.hpp"

namespace {

using namespace ddprun::checkpoint;

std::size_t held_bytes = 0;
std::size_t max_held_bytes = 0;

void allocated(const volatile void*, std::size_t size) {
    held_bytes += size;
    max_held_bytes = std::max(max_held_bytes, held_bytes);
}
void freed(const volatile void* block) {
    const std::size_t size = block == nullptr ? 0 : __sanitizer_get_allocated_size(const_cast<const void*>(block));
    held_bytes -= std::min(held_bytes, size);
}
[[maybe_unused]] const int hooked = __sanitizer_install_malloc_and_free_hooks(allocated, freed);

/// The nodes of sets and maps, and vectors that grow, take a multiple of the text.
constexpr std::size_t kMaxFactor = 64;
constexpr std::size_t kMaxRest = 16u << 10;

void check_accepted(std::string_view json, const Header& header, std::uint64_t data_bytes) {
    const boost::json::object parsed =
        boost::json::parse(boost::json::string_view(json.data(), json.size())).as_object();
    const std::size_t others = parsed.contains("__metadata__") ? 1 : 0;
    check(parsed.size() == header.tensors.size() + others, "another number of tensors than Boost.JSON has");
    std::size_t next = 0;
    for (const Tensor& tensor : header.tensors) {
        check(parsed.contains(tensor.name), "a tensor that Boost.JSON does not have: " + tensor.name);
        check(tensor.begin == next && tensor.end() >= next && tensor.end() <= data_bytes, "a tensor outside the data");
        next = tensor.end();
    }
    check(next == data_bytes, "bytes that are in no tensor");
    const std::string written = encode(header);
    const auto again = decode(std::string_view(written).substr(kLengthBytes), data_bytes);
    check(again && *again == header, "a header changes when it is written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const std::size_t before = held_bytes;
    max_held_bytes = held_bytes;
    const auto length = json_bytes(file, size);
    if (!length) return 0;
    const std::string_view json = file.substr(kLengthBytes, *length);
    const std::uint64_t data_bytes = size - kLengthBytes - *length;
    {
        const auto header = decode(json, data_bytes);
        check(max_held_bytes - before <= kMaxFactor * size + kMaxRest, "it takes too much memory");
        if (!header) {
            check(!header.error().message.empty(), "an error without a text");
            return 0;
        }
        check_accepted(json, *header, data_bytes);
        if (has_checksums(*header)) static_cast<void>(checksums_of(*header, file.substr(0, kLengthBytes + *length)));
    }
    return 0;
}

#include "common/checkpoint/checksums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/text/number.hpp"
#include "common/word_hash.hpp"

namespace ddprun::checkpoint {
namespace {

constexpr std::string_view kVersionKey = "ddp.version";
constexpr std::string_view kStepKey = "ddp.step";
constexpr std::string_view kWorldKey = "ddp.world_size";
constexpr std::string_view kGenerationKey = "ddp.generation";
constexpr std::string_view kBlockKey = "ddp.block_bytes";
constexpr std::string_view kHashesKey = "ddp.hashes";
constexpr std::string_view kHeaderKey = "ddp.header_hash";
constexpr std::size_t kHashDigits = 16;  // of a hash

Error damaged(std::string_view what) { return {Errc::kMalformed, fmt::format("its header is damaged: {}", what)}; }

std::uint64_t hash_of(std::string_view text) {
    WordHash64 hash;
    hash.add(std::as_bytes(std::span(text)));
    return hash.value();
}

std::string digits_of(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<std::uint64_t> hash_in(std::string_view digits) {
    std::uint64_t hash = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
    if (digits.size() != kHashDigits || error != std::errc() || end != digits.data() + digits.size()) return {};
    return hash;
}

/// Returns where the digits of the header's hash begin; npos: it has none.
std::size_t place_of_header_hash(std::string_view text) {
    const std::string before = fmt::format("\"{}\":\"", kHeaderKey);
    const std::size_t found = text.find(before);
    return found == std::string_view::npos ? found : found + before.size();
}

/// Returns the hash of the header with zeros in the place of the hash.
std::uint64_t header_hash(std::string text) {
    text.replace(place_of_header_hash(text), kHashDigits, kHashDigits, '0');
    return hash_of(text);
}

template <typename Number>
std::optional<Number> number_in(const Header& header, std::string_view key) {
    const auto found = header.metadata.find(std::string(key));
    return found == header.metadata.end() ? std::optional<Number>{} : parse_number<Number>(found->second);
}

/// Returns how many chunks chunks_of() returns.
std::size_t count_of_chunks(std::span<const Tensor> tensors) {
    std::size_t count = 0;
    for (const Tensor& tensor : tensors)
        if (tensor.bytes > 0) count += (tensor.end() - 1) / kBlockBytes - tensor.begin / kBlockBytes + 1;
    return count;
}

}  // namespace

std::vector<Chunk> chunks_of(std::span<const Tensor> tensors) {
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        for (std::size_t begin = tensors[i].begin; begin < tensors[i].end();) {
            const std::size_t end = std::min(tensors[i].end(), (begin / kBlockBytes + 1) * kBlockBytes);
            chunks.push_back({i, begin, end - begin, 0});
            begin = end;
        }
    }
    return chunks;
}

std::string encode_checkpoint(const SaveFacts& facts, std::span<const Tensor> tensors,
                              std::span<const std::uint64_t> hashes) {
    std::string digits;
    for (const std::uint64_t hash : hashes) digits += digits_of(hash);
    digits.resize(count_of_chunks(tensors) * kHashDigits, '0');
    Header header{.metadata = {{"format", "pt"},  // some readers ask for it
                               {std::string(kVersionKey), std::to_string(kVersion)},
                               {std::string(kStepKey), std::to_string(facts.step)},
                               {std::string(kWorldKey), std::to_string(facts.world_size)},
                               {std::string(kGenerationKey), std::to_string(facts.generation)},
                               {std::string(kBlockKey), std::to_string(kBlockBytes)},
                               {std::string(kHashesKey), std::move(digits)},
                               {std::string(kHeaderKey), std::string(kHashDigits, '0')}},
                  .tensors = {tensors.begin(), tensors.end()}};
    std::string text = encode(header);
    text.replace(place_of_header_hash(text), kHashDigits, digits_of(header_hash(text)));
    return text;
}

bool has_checksums(const Header& header) { return header.metadata.contains(std::string(kVersionKey)); }

Result<Checksums> checksums_of(const Header& header, std::string_view first_bytes) {
    const auto version = number_in<int>(header, kVersionKey);
    const auto block_bytes = number_in<std::size_t>(header, kBlockKey);
    const auto step = number_in<std::uint64_t>(header, kStepKey);
    const auto world_size = number_in<std::uint64_t>(header, kWorldKey);
    const auto generation = number_in<std::int64_t>(header, kGenerationKey);
    if (version && *version != kVersion)
        return Error{
            Errc::kMismatch,
            fmt::format("it is a checkpoint of version {}, and this program reads versions up to {}. Update the "
                        "program",
                        *version, kVersion)};
    if (!version || !step || !world_size || !generation || block_bytes != kBlockBytes)
        return damaged("a number in __metadata__ is wrong");
    const std::size_t place = place_of_header_hash(first_bytes);
    const auto expected = place == std::string_view::npos ? std::optional<std::uint64_t>{}
                                                          : hash_in(first_bytes.substr(place, kHashDigits));
    if (!expected || *expected != header_hash(std::string(first_bytes))) return damaged("its checksum is wrong");
    const auto hashes = header.metadata.find(std::string(kHashesKey));
    // The file may be sparse, and have more chunks than the header has bytes.
    const std::size_t expected_hashes = count_of_chunks(header.tensors);
    const std::size_t digits = hashes == header.metadata.end() ? 0 : hashes->second.size();
    if (digits != expected_hashes * kHashDigits)
        return damaged(fmt::format("{} checksums for {} chunks", digits / kHashDigits, expected_hashes));
    Checksums found{{*step, *world_size, *generation}, chunks_of(header.tensors)};
    for (std::size_t i = 0; i < found.chunks.size(); ++i) {
        const auto hash = hash_in(std::string_view(hashes->second).substr(i * kHashDigits, kHashDigits));
        if (!hash) return damaged("a checksum is not a number");
        found.chunks[i].hash = *hash;
    }
    return found;
}

}  // namespace ddprun::checkpoint

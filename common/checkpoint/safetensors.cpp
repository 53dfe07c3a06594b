#include "common/checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "common/checkpoint/json_reader.hpp"
#include "common/text/escape.hpp"

namespace ddprun::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::array<std::pair<std::string_view, std::size_t>, 16> kTypes{{{"BOOL", 1},
                                                                           {"U8", 1},
                                                                           {"I8", 1},
                                                                           {"F8_E4M3", 1},
                                                                           {"F8_E5M2", 1},
                                                                           {"I16", 2},
                                                                           {"U16", 2},
                                                                           {"F16", 2},
                                                                           {"BF16", 2},
                                                                           {"I32", 4},
                                                                           {"U32", 4},
                                                                           {"F32", 4},
                                                                           {"I64", 8},
                                                                           {"U64", 8},
                                                                           {"F64", 8},
                                                                           {"C64", 8}}};

Error malformed(std::string message) { return {Errc::kMalformed, std::move(message)}; }

std::string named(const Tensor& tensor) { return fmt::format("tensor '{}'", log_line(tensor.name, 200)); }

std::vector<std::uint64_t> read_numbers(JsonReader& json) {
    std::vector<std::uint64_t> numbers;
    json.expect('[');
    if (json.accept(']')) return numbers;
    do numbers.push_back(json.number());
    while (json.good() && json.accept(','));
    json.expect(']');
    return numbers;
}

std::map<std::string, std::string> read_metadata(JsonReader& json) {
    std::map<std::string, std::string> metadata;
    json.expect('{');
    if (json.accept('}')) return metadata;
    do {
        std::string key = json.string();
        json.expect(':');
        std::string value = json.string();
        if (!metadata.emplace(std::move(key), std::move(value)).second) json.fail("a duplicate key");
    } while (json.good() && json.accept(','));
    json.expect('}');
    return metadata;
}

Tensor read_tensor(JsonReader& json, std::string name) {
    Tensor tensor{.name = std::move(name), .dtype = {}, .shape = {}, .begin = 0, .bytes = 0};
    std::set<std::string> keys;
    json.expect('{');
    do {
        const std::string key = json.string();
        json.expect(':');
        if (!keys.insert(key).second) json.fail("a duplicate key");
        if (key == "dtype") {
            tensor.dtype = json.string();
        } else if (key == "shape") {
            const auto shape = read_numbers(json);
            tensor.shape.assign(shape.begin(), shape.end());
        } else if (key == "data_offsets") {
            const auto offsets = read_numbers(json);
            if (offsets.size() != 2 || offsets[0] > offsets[1]) {
                json.fail("data_offsets are not a beginning and an end");
            } else {
                tensor.begin = offsets[0];
                tensor.bytes = offsets[1] - offsets[0];
            }
        } else {
            json.fail("a key that tensors do not have");
        }
    } while (json.good() && json.accept(','));
    json.expect('}');
    if (keys.size() != 3) json.fail("a tensor without dtype, shape or data_offsets");
    return tensor;
}

/// Returns what is wrong with a tensor in itself; empty: nothing.
std::string complaint(const Tensor& tensor) {
    std::size_t bytes = element_bytes(tensor.dtype);
    if (bytes == 0) return fmt::format("its type '{}' is not known", log_line(tensor.dtype, 40));
    for (const std::size_t size : tensor.shape) {
        if (size != 0 && bytes > std::numeric_limits<std::size_t>::max() / size) return "its shape is too large";
        bytes *= size;
    }
    if (bytes == tensor.bytes) return {};
    return fmt::format("its shape has {} bytes, its data_offsets {}", bytes, tensor.bytes);
}

/// Sorts the tensors by their bytes, and returns what is wrong with them; empty: nothing.
std::string sort_and_check(std::vector<Tensor>& tensors, std::uint64_t data_bytes) {
    std::ranges::stable_sort(tensors, {}, [](const Tensor& t) { return std::pair(t.begin, t.bytes); });
    std::uint64_t next = 0;
    for (const Tensor& tensor : tensors) {
        if (const std::string wrong = complaint(tensor); !wrong.empty())
            return fmt::format("{}: {}", named(tensor), wrong);
        if (tensor.begin != next)
            return fmt::format("{} begins at byte {} of the data instead of {}", named(tensor), tensor.begin, next);
        if (tensor.bytes > data_bytes - next)
            return fmt::format("{} ends at byte {} of the data, of which there are {}", named(tensor), tensor.end(),
                               data_bytes);
        next = tensor.end();
    }
    if (next == data_bytes) return {};
    return fmt::format("it has {} bytes of data, its tensors {}", data_bytes, next);
}

void append_string(std::string& json, std::string_view text) {
    json += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
            json += c;
        }
    }
    json += '"';
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
    const auto* const found = std::ranges::find(kTypes, dtype, &std::pair<std::string_view, std::size_t>::first);
    return found == kTypes.end() ? 0 : found->second;
}

Result<std::size_t> json_bytes(std::string_view first_bytes, std::uint64_t file_bytes) {
    std::uint64_t length = 0;
    if (first_bytes.size() < kLengthBytes || file_bytes < kLengthBytes)
        return malformed("it is too short for a safetensors file");
    std::memcpy(&length, first_bytes.data(), kLengthBytes);
    if (length < 2 || length > kMaxHeaderBytes || length > file_bytes - kLengthBytes)
        return malformed("it does not begin like a safetensors file");
    return static_cast<std::size_t>(length);
}

Result<Header> decode(std::string_view text, std::uint64_t data_bytes) {
    if (!text.starts_with('{')) return malformed("its header does not begin with '{'");
    JsonReader json(text);
    Header header;
    std::set<std::string> names;
    json.expect('{');
    if (!json.accept('}')) {
        do {
            std::string name = json.string();
            json.expect(':');
            if (!names.insert(name).second) json.fail("a duplicate name");
            if (name == kMetadata) {
                header.metadata = read_metadata(json);
            } else {
                header.tensors.push_back(read_tensor(json, std::move(name)));
            }
        } while (json.good() && json.accept(','));
        json.expect('}');
    }
    json.expect_end();
    if (!json.good()) return malformed("its header is damaged " + json.error());
    if (std::string wrong = sort_and_check(header.tensors, data_bytes); !wrong.empty())
        return malformed(std::move(wrong));
    return header;
}

std::string encode(const Header& header) {
    std::string json(kLengthBytes, '\0');
    json += '{';
    const auto separate = [&] {
        if (json.back() != '{') json += ',';
    };
    if (!header.metadata.empty()) {
        json += fmt::format("\"{}\":{{", kMetadata);
        for (const auto& [key, value] : header.metadata) {
            separate();
            append_string(json, key);
            json += ':';
            append_string(json, value);
        }
        json += '}';
    }
    for (const Tensor& tensor : header.tensors) {
        separate();
        append_string(json, tensor.name);
        json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.dtype,
                            fmt::join(tensor.shape, ","), tensor.begin, tensor.end());
    }
    json += '}';
    json.resize((json.size() + kPageBytes - 1) / kPageBytes * kPageBytes, ' ');
    const std::uint64_t length = json.size() - kLengthBytes;
    std::memcpy(json.data(), &length, kLengthBytes);
    return json;
}

}  // namespace ddprun::checkpoint

#pragma once
// The safetensors format (https://github.com/huggingface/safetensors): 8 bytes with the length of the header, the
// header in JSON, and the tensors end to end. Pure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"

namespace ddprun::checkpoint {

/// One tensor of a file.
struct Tensor {
    std::string name;
    std::string dtype;               ///< as in the file: "F32"
    std::vector<std::size_t> shape;  ///< empty: a scalar
    std::size_t begin = 0;           ///< its first byte, counted from the first byte of the data
    std::size_t bytes = 0;
    bool operator==(const Tensor&) const = default;
    [[nodiscard]] std::size_t end() const { return begin + bytes; }
};

/// The header of a file.
struct Header {
    std::map<std::string, std::string> metadata;  ///< the object "__metadata__"
    std::vector<Tensor> tensors;                  ///< in the order of their bytes, without gaps
    bool operator==(const Header&) const = default;
};

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;  ///< of the format
inline constexpr std::size_t kPageBytes = 65536;             ///< the largest usual page size of hosts (arm64, POWER)

/// Returns the size of an element; 0 for a type that is not known.
[[nodiscard]] std::size_t element_bytes(std::string_view dtype);

/// Returns the length of the JSON text, given the first bytes of a file of `file_bytes`. It is never longer than the
/// file.
[[nodiscard]] Result<std::size_t> json_bytes(std::string_view first_bytes, std::uint64_t file_bytes);

/// Parses the JSON text of a file with `data_bytes` of data. Refuses tensors that overlap, leave gaps, do not reach the
/// end of the data or have other sizes than their shapes. The error names the tensor.
[[nodiscard]] Result<Header> decode(std::string_view json, std::uint64_t data_bytes);

/// Returns the beginning of a file: length and JSON text, padded with spaces so that the data begins at a page.
[[nodiscard]] std::string encode(const Header& header);

}  // namespace ddprun::checkpoint

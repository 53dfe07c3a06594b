#pragma once
// Text: the bytes to learn from, those of one file after another.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp/context.hpp"

namespace train {

struct Text {
    std::vector<std::uint8_t> bytes;
    std::size_t files = 0;
    std::string source;             ///< for messages: "a.txt", "a.txt and 2 more files"
    std::uint64_t fingerprint = 0;  ///< of the bytes: ranks compare it, checkpoints keep it
};

/// Returns the licence texts that every Debian and Ubuntu machine has, sorted, each file once although links point to
/// some. Throws UserError when there are none.
[[nodiscard]] std::vector<std::filesystem::path> default_files();

/// Reads the files. Throws UserError naming the file and the cause.
[[nodiscard]] Text read_text(const std::vector<std::filesystem::path>& files);

/// Reads the files on every rank; default_files() if `files` is empty. Collective. Throws UserError on all ranks if one
/// of them cannot read, or reads other bytes than rank 0.
[[nodiscard]] Text read_same_text(const std::vector<std::filesystem::path>& files, ddp::Context& context);

}  // namespace train

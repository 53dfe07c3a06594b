#include "train/text.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>

#include "ddp/ddp.hpp"
#include "train/user_error.hpp"

namespace train {
namespace {

constexpr const char* kDefaultFolder = "/usr/share/common-licenses";

void append_file(const std::filesystem::path& path, std::vector<std::uint8_t>& bytes) {
    const auto refuse = [&](const std::string& why) {
        throw UserError(
            fmt::format("cannot read data file {}: {}. Pass readable files with --data", path.string(), why));
    };
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) refuse("it is a directory");
    // A pipe or a device may have no end, and gives each rank other bytes.
    if (const auto status = std::filesystem::status(path, error);
        std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        refuse("it is not a regular file");
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(errno != 0 ? std::strerror(errno) : "it cannot be opened");
    bytes.insert(bytes.end(), std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (file.bad()) refuse(errno != 0 ? std::strerror(errno) : "reading failed");
}

std::uint64_t fingerprint(const std::vector<std::uint8_t>& bytes) {
    // FNV-1a: equal on all machines, which std::hash need not be.
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
    return hash;
}

}  // namespace

std::vector<std::filesystem::path> default_files() {
    std::set<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(kDefaultFolder, error)) {
        std::error_code broken_link;  // then it is not a regular file
        if (entry.is_regular_file(broken_link)) files.insert(std::filesystem::canonical(entry.path()));
    }
    if (files.empty())
        throw UserError(fmt::format(
            "no --data is given, and the default folder {} has no files. Pass files with --data", kDefaultFolder));
    return {files.begin(), files.end()};
}

Text read_text(const std::vector<std::filesystem::path>& files) {
    Text text;
    for (const auto& path : files) append_file(path, text.bytes);
    text.files = files.size();
    if (!files.empty()) text.source = files[0].string();
    if (files.size() > 1)
        text.source += fmt::format(" and {} more file{}", files.size() - 1, files.size() > 2 ? "s" : "");
    text.fingerprint = fingerprint(text.bytes);
    return text;
}

Text read_same_text(const std::vector<std::filesystem::path>& files, ddp::Context& context) {
    Text text;
    std::string problem;
    try {
        text = read_text(files.empty() ? default_files() : files);
    } catch (const UserError& error) {
        problem = error.what();
    }
    leave_together_if(context, problem);

    // Two nodes may have different files under one name. Then the ranks would shard different samples.
    std::array<std::uint64_t, 2> of_rank_0{text.bytes.size(), text.fingerprint};
    context.world().broadcast(of_rank_0, 0).wait();
    if (of_rank_0 != std::array<std::uint64_t, 2>{text.bytes.size(), text.fingerprint}) {
        const std::string difference =
            of_rank_0[0] == text.bytes.size()
                ? fmt::format("the same number of bytes, {}, but other content", text.bytes.size())
                : fmt::format("{} bytes, rank 0 has {}", text.bytes.size(), of_rank_0[0]);
        problem = fmt::format(
            "rank {} on node {} reads other data than rank 0: {}. Give all nodes the same files with --data",
            context.rank(), context.node_rank(), difference);
    }
    leave_together_if(context, problem);
    return text;
}

}  // namespace train

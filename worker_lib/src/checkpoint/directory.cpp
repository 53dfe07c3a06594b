#include "worker_lib/src/checkpoint/directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>

#include "common/text/number.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";

/// Returns what the user can do about the error; empty: nothing that is known.
std::string_view remedy(const std::error_code& error) {
    switch (error.value()) {
        case EACCES:
        case EPERM:
        case EROFS: return ". Pass a directory that this user may write to";
        case ENOSPC:
        case EDQUOT: return ". Free some space there, or pass another directory";
        case ENOENT: return ". Was it removed while the job ran?";
        case ENOTDIR:
        case EEXIST: return ". Remove the file that has the name of a directory, or pass another directory";
        default: return "";
    }
}

}  // namespace

Error error_in(const std::filesystem::path& directory, std::string_view what, const std::error_code& error) {
    return Error(ErrorCode::Io, fmt::format("cannot {} checkpoint directory {}: {}{}", what, directory.string(),
                                            error.message(), remedy(error)));
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        names.push_back(entry->path().filename().string());
    }
    if (error) throw error_in(directory, "read", error);
    return names;
}

std::optional<std::uint64_t> step_of(std::string_view name) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() < kPrefix.size() + kSuffix.size())
        return {};
    name.remove_prefix(kPrefix.size());
    name.remove_suffix(kSuffix.size());
    return ddprun::parse_number<std::uint64_t>(name);
}

std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::uint64_t step) {
    return directory / fmt::format("{}{}{}", kPrefix, step, kSuffix);
}

void open_directory(const std::filesystem::path& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) throw error_in(directory, "create", error);
}

std::vector<std::uint64_t> steps_in(const std::filesystem::path& directory) {
    std::vector<std::uint64_t> steps;
    for (const std::string& name : names_in(directory)) {
        if (const auto step = step_of(name)) steps.push_back(*step);
    }
    std::ranges::sort(steps, std::ranges::greater{});
    return steps;
}

void remove_older(const std::filesystem::path& directory, std::uint64_t step, int keep) {
    std::vector<std::uint64_t> steps;
    try {
        steps = steps_in(directory);
    } catch (const Error&) {  // the new checkpoint is safe; the next save tries again
    }
    int seen = 0;
    for (const std::uint64_t old : steps) {
        if (old > step || ++seen <= keep) continue;
        std::error_code ignored;  // an old file costs only room; the next save tries again
        std::filesystem::remove(checkpoint_path(directory, old), ignored);
    }
}

}  // namespace ddp::detail

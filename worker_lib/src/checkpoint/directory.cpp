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
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kOldSuffix = ".ckpt";  // of formats before version 3

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
    for (const std::string_view suffix : {kSuffix, kOldSuffix}) {
        if (!name.starts_with(kPrefix) || !name.ends_with(suffix) || name.size() < kPrefix.size() + suffix.size())
            continue;
        const auto digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size());
        const auto step = ddprun::parse_number<std::uint64_t>(digits);
        if (step && std::to_string(*step) == digits) return step;  // not "0007"
    }
    return {};
}

std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::uint64_t step) {
    return directory / fmt::format("{}{}{}", kPrefix, step, kSuffix);
}

std::filesystem::path old_checkpoint_path(const std::filesystem::path& directory, std::uint64_t step) {
    return directory / fmt::format("{}{}{}", kPrefix, step, kOldSuffix);
}

std::filesystem::path existing_path(const std::filesystem::path& directory, std::uint64_t step) {
    std::error_code error;  // means that it does not exist
    const auto exists = [&](const std::filesystem::path& path) {
        return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
    };
    auto path = checkpoint_path(directory, step);
    auto old = old_checkpoint_path(directory, step);
    return !exists(path) && exists(old) ? old : path;
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
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());  // one step may have files of both formats
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
        std::filesystem::remove(old_checkpoint_path(directory, old), ignored);
    }
}

}  // namespace ddp::detail

#include "agent/output/log_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "common/fnv.hpp"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxFolderBytes = 64;  ///< of a run id in the name of a folder

bool belongs_into_folder(unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || c == '-' || c == '_' || c == '.';
}

/// Returns the run id as the name of a folder, which two ids never share. An id that is long, hidden, or has other
/// characters than letters, digits, '-', '_' and '.' is cut, these are replaced, and its hash follows a '~', which no
/// other name has.
std::string folder_of(const std::string& run_id) {
    std::string name = run_id.substr(0, kMaxFolderBytes);
    std::ranges::replace_if(
        name, [](unsigned char c) { return !belongs_into_folder(c); }, '_');
    if (name.starts_with('.')) name.front() = '_';  // neither hidden nor ".."
    if (!name.empty() && name == run_id) return name;
    Fnv64 hash;
    hash.add(run_id);
    return fmt::format("{}~{:016x}", name, hash.value());
}

}  // namespace

Result<void> make_folders(const std::filesystem::path& path) {
    if (path.empty() || path == path.root_path()) return {};
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    if (errno != ENOENT) return system_error(fmt::format("cannot create the folder {}", path.string()), errno);
    if (const Result<void> parent = make_folders(path.parent_path()); !parent) return parent;
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    return system_error(fmt::format("cannot create the folder {}", path.string()), errno);
}

Result<void> prepare_log_dir(const std::filesystem::path& log_dir) {
    if (const Result<void> made = make_folders(log_dir); !made) return made;
    struct stat status {};
    if (::stat(log_dir.c_str(), &status) != 0) return system_error("its status cannot be read", errno);
    if (!S_ISDIR(status.st_mode)) return system_error("it is a file", ENOTDIR);
    if (::access(log_dir.c_str(), W_OK | X_OK) != 0) return system_error("it cannot be written to", errno);
    return {};
}

std::filesystem::path log_folder(const std::string& log_dir, const std::string& run_id, Generation generation) {
    return std::filesystem::path(log_dir) / folder_of(run_id) / fmt::format("gen-{}", number(generation));
}

std::string log_file_name(Rank rank, const char* extension) {
    return fmt::format("rank-{}.{}", number(rank), extension);
}

std::filesystem::path full_path(const std::filesystem::path& path) {
    std::error_code unknown;
    const std::filesystem::path full = std::filesystem::absolute(path, unknown);
    return unknown ? path : full;
}

std::string files_kept_text(const std::string& log_dir) {
    return fmt::format("the files with the output of the workers are in {}", log_dir);
}

Result<UniqueFd> open_log_file(const std::filesystem::path& path) {
    if (const Result<void> folders = make_folders(path.parent_path()); !folders) return folders.error();
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return system_error(fmt::format("cannot open the log file {}", path.string()), errno);
    return fd;
}

}  // namespace ddprun::agent

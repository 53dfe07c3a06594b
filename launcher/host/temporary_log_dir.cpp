#include "launcher/host/temporary_log_dir.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/system/standard_fds.hpp"

namespace ddprun::launcher {

Result<TemporaryLogDir> TemporaryLogDir::make(const Environment& environment) {
    std::vector<std::string> parents;
    if (const auto set = environment.find("TMPDIR"); set != environment.end() && !set->second.empty())
        parents.push_back(set->second);
    parents.emplace_back("/tmp");
    Error error;
    for (const std::string& parent : parents) {
        std::error_code unknown;  // a relative path is kept then
        std::string pattern = std::filesystem::absolute(parent, unknown) / "ddprun-XXXXXX";
        if (::mkdtemp(pattern.data()) != nullptr) {
            TemporaryLogDir made;
            made.path_ = std::move(pattern);
            return made;
        }
        error = system_error(fmt::format("cannot make a folder for log files in {}", parent), errno);
    }
    error.message += ". Set TMPDIR to a folder that this user can write to, or pass --log-dir DIR.";
    return error;
}

TemporaryLogDir::~TemporaryLogDir() { release(false); }

bool TemporaryLogDir::release(bool success) {
    const std::string path = std::exchange(path_, {});
    if (path.empty() || ::rmdir(path.c_str()) == 0) return false;
    if (!success) return true;
    std::error_code failed;
    std::filesystem::remove_all(path, failed);
    if (!failed) return false;
    if (stderr_has_room()) spdlog::warn("cannot remove the temporary log files in {}: {}", path, failed.message());
    return true;
}

}  // namespace ddprun::launcher

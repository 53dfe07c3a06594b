#include "worker_lib/src/checkpoint/save_fence.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/number.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"

namespace ddp::detail {
namespace {

constexpr std::string_view kMarkerPrefix = "gen-";
constexpr std::string_view kTemporarySuffix = ".tmp";

std::string to_text(const Owner& owner) { return fmt::format("{}.{}", owner.generation, owner.session); }

/// Returns the owner in "<generation>.<session>".
std::optional<Owner> owner_in(std::string_view text) {
    const auto dot = text.find('.');
    const auto generation = ddprun::parse_number<std::int64_t>(text.substr(0, dot));
    if (!generation || dot == std::string_view::npos || text.find('.', dot + 1) != std::string_view::npos) return {};
    return Owner{std::string(text.substr(dot + 1)), *generation};
}

std::optional<Owner> owner_of_marker(std::string_view name) {
    if (!name.starts_with(kMarkerPrefix)) return {};
    return owner_in(name.substr(kMarkerPrefix.size()));
}

/// Returns the owner of a temporary file; one without a session if its name has none, as those of older versions.
std::optional<Owner> owner_of_temporary(std::string_view name) {
    const auto end = name.find(kTemporarySuffix);
    if (end == std::string_view::npos || !step_of(name.substr(0, end))) return {};
    std::string_view rest = name.substr(end + kTemporarySuffix.size());  // "", ".<random>" or ".<owner>.<random>"
    if (rest.empty()) return Owner{};
    if (rest.front() != '.') return {};
    rest.remove_prefix(1);
    const auto dot = rest.rfind('.');
    if (dot == std::string_view::npos) return Owner{};
    return owner_in(rest.substr(0, dot));
}

}  // namespace

void SaveFence::open() {
    if (is_fenced()) return claim([this](const Owner& owner) { return owner.is_older_than(self_); });
    remove_temporaries([](const Owner& owner) { return owner.session.empty(); });
}

void SaveFence::take_over() {
    if (!is_fenced() || taken_over_) return;
    claim([this](const Owner& owner) { return owner.session != self_.session || owner.is_older_than(self_); });
    taken_over_ = true;
}

std::filesystem::path SaveFence::temporary_path(const std::filesystem::path& path) const {
    const std::string owner = is_fenced() ? to_text(self_) + "." : "";
    return fmt::format("{}{}.{}{}", path.string(), kTemporarySuffix, owner, ddprun::random_id());
}

int SaveFence::look_for_marker() const {
    // open() and not stat(): NFS answers a stat() from its cache, but looks at the server for an open().
    if (!is_fenced() || ddprun::UniqueFd(::open(marker_path().c_str(), O_RDONLY | O_CLOEXEC))) return 0;
    return errno;
}

void SaveFence::refuse_superseded(const std::filesystem::path& checkpoint) const {
    const int error = look_for_marker();
    std::error_code ignored;
    if ((error == ENOENT || error == ESTALE) && std::filesystem::exists(directory_, ignored))
        fail_superseded(fmt::format("cannot save checkpoint {}", checkpoint.string()));
}

std::filesystem::path SaveFence::marker_path() const {
    return directory_ / fmt::format("{}{}", kMarkerPrefix, to_text(self_));
}

/// Makes the marker, and then removes what older owners have there. A Checkpointer of the same generation may have made
/// it before.
void SaveFence::claim(const IsOlder& is_older) {
    const ddprun::UniqueFd fd(::open(marker_path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd && errno != EEXIST)
        fail_in(directory_, "create a file in", std::error_code(errno, std::generic_category()));
    const std::vector<std::string> names = names_in(directory_);
    for (const std::string& name : names) {
        const auto owner = owner_of_marker(name);
        if (!owner || !self_.is_older_than(*owner)) continue;
        remove(marker_path().filename().string());
        fail_superseded(fmt::format("cannot use checkpoint directory {}", directory_.string()));
    }
    for (const std::string& name : names) {
        const auto owner = owner_of_marker(name);
        if (owner && is_older(*owner)) remove(name);
    }
    remove_temporaries(is_older);
}

void SaveFence::remove_temporaries(const IsOlder& is_older) const {
    for (const std::string& name : names_in(directory_)) {
        const auto owner = owner_of_temporary(name);
        if (owner && is_older(*owner)) remove(name);
    }
}

void SaveFence::remove(const std::string& name) const {
    std::error_code error;
    std::filesystem::remove(directory_ / name, error);
    if (error) fail_in(directory_, fmt::format("remove {} from", name), error);
}

void SaveFence::fail_superseded(std::string_view what) const {
    std::string others;
    for (const std::string& name : names_in(directory_)) {
        const auto owner = owner_of_marker(name);
        if (!owner) continue;
        if (self_.is_older_than(*owner)) {
            throw Error(ErrorCode::Superseded,
                        fmt::format("{}: generation {} of this job has taken the directory over from generation {}. "
                                    "End this process; the newer generation goes on",
                                    what, owner->generation, self_.generation));
        }
        others += fmt::format("{}{}", others.empty() ? ", where now is " : ", ", name);
    }
    throw Error(ErrorCode::Superseded,
                fmt::format("{}: the marker {} was removed{}. Another job uses the directory, or the file was removed "
                            "by hand. Give each job a checkpoint directory of its own, and start this one again",
                            what, marker_path().filename().string(), others));
}

}  // namespace ddp::detail

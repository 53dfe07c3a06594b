#include "worker_lib/src/checkpoint/save_fence.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

/// Returns whether `text` has the form of ddprun::random_id(), as sessions have, too.
bool is_random_id(std::string_view text) {
    return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Returns the owner in "<generation>.<session>".
std::optional<Owner> owner_in(std::string_view text) {
    const auto dot = text.find('.');
    if (dot == std::string_view::npos) return {};
    Owner owner{std::string(text.substr(dot + 1)),
                ddprun::parse_number<std::int64_t>(text.substr(0, dot)).value_or(-1)};
    if (owner.generation < 0 || !is_random_id(owner.session) || to_text(owner) != text) return {};
    return owner;
}

/// Returns "x" for "x.<random>"; nothing for any other text.
std::optional<std::string_view> without_random(std::string_view text) {
    const auto dot = text.rfind('.');
    if (dot == std::string_view::npos || !is_random_id(text.substr(dot + 1))) return {};
    return text.substr(0, dot);
}

std::optional<Owner> owner_of_marker(std::string_view name) {
    if (!name.starts_with(kMarkerPrefix)) return {};
    name.remove_prefix(kMarkerPrefix.size());
    if (const auto owner = owner_in(name)) return owner;
    return owner_in(without_random(name).value_or(""));
}

/// Returns the owner of a temporary file; one without a session if its name has none, as those of older versions.
std::optional<Owner> owner_of_temporary(std::string_view name) {
    const auto end = name.find(kTemporarySuffix);
    if (end == std::string_view::npos) return {};
    const std::string_view file = name.substr(0, end);
    if (!step_of(file)) return {};
    const std::string_view rest = name.substr(end + kTemporarySuffix.size());  // "", ".<random>", ".<owner>.<random>"
    if (rest.empty()) return Owner{};
    const auto owner = without_random(rest);
    if (!owner) return {};
    if (owner->empty()) return Owner{};
    return owner->front() == '.' ? owner_in(owner->substr(1)) : std::nullopt;
}

std::optional<std::uintmax_t> size_of_regular_file(const std::filesystem::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
    return static_cast<std::uintmax_t>(status.st_size);
}

struct Marker {
    std::string name;
    Owner owner;
};

/// Returns the markers there: only empty regular files, because any other file belongs to the user.
std::vector<Marker> markers_in(const std::filesystem::path& directory) {
    std::vector<Marker> markers;
    for (const std::string& name : names_in(directory)) {
        const auto owner = owner_of_marker(name);
        if (owner && size_of_regular_file(directory / name) == 0) markers.push_back({name, *owner});
    }
    return markers;
}

/// Returns whether the error concerns only a job that saves.
bool allows_loading(int error) {
    return error == EROFS || error == EACCES || error == EPERM || error == ENOSPC || error == EDQUOT;
}

/// Returns 0, or the errno with which a file there could not be created.
int try_to_create_in(const std::filesystem::path& directory) {
    return ::access(directory.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

}  // namespace

SaveFence::~SaveFence() {
    if (marker_.empty()) return;
    std::error_code ignored;  // it is gone, or stays until another job saves
    if (taken_over_) {
        std::filesystem::rename(marker_, std::filesystem::path(marker_).replace_extension(), ignored);
    } else {
        std::filesystem::remove(marker_, ignored);
    }
}

void SaveFence::open() {
    const int error = is_fenced() ? make_marker() : try_to_create_in(directory_);
    if (error != 0 && !allows_loading(error)) throw error_of_marker(error);
    if (error != 0) {  // it may be hours until the first save
        std::fputs(
            fmt::format("[ddp] checkpoints can be loaded, but not saved: {}\n", error_of_marker(error).what()).c_str(),
            stderr);
    }
    if (!is_fenced()) return remove_temporaries([](const Owner& owner) { return owner.session.empty(); });
    claim([this](const Owner& owner) { return owner.is_older_than(self_); });
}

void SaveFence::take_over() {
    if (!is_fenced() || taken_over_) return;
    if (marker_.empty()) {
        if (const int error = make_marker()) throw error_of_marker(error);
    } else {
        refuse_if_marker_is_gone(fmt::format("cannot save to checkpoint directory {}", directory_.string()));
    }
    claim([this](const Owner& owner) { return owner.session != self_.session || owner.is_older_than(self_); });
    taken_over_ = true;
}

std::filesystem::path SaveFence::temporary_path(const std::filesystem::path& path) const {
    const std::string owner = is_fenced() ? to_text(self_) + "." : "";
    return fmt::format("{}{}.{}{}", path.string(), kTemporarySuffix, owner, ddprun::random_id());
}

int SaveFence::look_for_marker() const {
    // open() and not stat(): NFS answers a stat() from its cache, but looks at the server for an open().
    if (!is_fenced() || ddprun::UniqueFd(::open(marker_.c_str(), O_RDONLY | O_CLOEXEC))) return 0;
    return errno;
}

void SaveFence::refuse_superseded(const std::filesystem::path& checkpoint) const {
    refuse_if_marker_is_gone(fmt::format("cannot save checkpoint {}", checkpoint.string()));
}

void SaveFence::refuse_if_marker_is_gone(std::string_view what) const {
    const int error = look_for_marker();
    std::error_code ignored;
    if ((error == ENOENT || error == ESTALE) && std::filesystem::exists(directory_, ignored)) fail_superseded(what);
}

/// Returns 0 or the errno of the failure.
int SaveFence::make_marker() {
    auto path = directory_ / fmt::format("{}{}.{}", kMarkerPrefix, to_text(self_), ddprun::random_id());
    const ddprun::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) return errno;
    marker_ = std::move(path);
    return 0;
}

Error SaveFence::error_of_marker(int error) const {
    return error_in(directory_, "create a file in", std::error_code(error, std::generic_category()));
}

/// Fails if a newer generation has a marker; else removes what older owners have there.
void SaveFence::claim(const IsOlder& is_older) const {
    const std::vector<Marker> markers = markers_in(directory_);
    for (const Marker& marker : markers) {
        if (self_.is_older_than(marker.owner))
            fail_superseded(fmt::format("cannot use checkpoint directory {}", directory_.string()));
    }
    for (const Marker& marker : markers) {
        if (is_older(marker.owner)) ::unlink((directory_ / marker.name).c_str());  // another user's may stay
    }
    remove_temporaries(is_older);
}

void SaveFence::remove_temporaries(const IsOlder& is_older) const {
    for (const std::string& name : names_in(directory_)) {
        const auto owner = owner_of_temporary(name);
        if (owner && is_older(*owner) && size_of_regular_file(directory_ / name))
            ::unlink((directory_ / name).c_str());  // one that stays costs only room
    }
}

void SaveFence::fail_superseded(std::string_view what) const {
    std::string others;
    for (const auto& [name, owner] : markers_in(directory_)) {
        if (self_.is_older_than(owner)) {
            throw Error(ErrorCode::Superseded,
                        fmt::format("{}: generation {} of this job has taken the directory over from generation {}. "
                                    "End this process; the newer generation goes on",
                                    what, owner.generation, self_.generation));
        }
        others += fmt::format("{}{}", others.empty() ? ", where now is " : ", ", name);
    }
    throw Error(ErrorCode::Superseded,
                fmt::format("{}: the marker {} was removed{}. Another job uses the directory, or the file was removed "
                            "by hand. Give each job a checkpoint directory of its own, and start this one again",
                            what, marker_.filename().string(), others));
}

}  // namespace ddp::detail

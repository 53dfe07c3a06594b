#pragma once
// SaveFence: lets only the newest generation of a job commit to a checkpoint directory. Rank 0 only.
//
// When it is opened, before a checkpoint is chosen to resume from, it makes a marker of its own: the empty file
// "gen-<generation>.<session>.<random>". Then it removes what older generations have there: first their markers, then
// their temporary files. A save writes its temporary file, looks for its marker and renames. So it either commits
// before the newer generation goes on, which then finds the checkpoint, or fails because its marker or its temporary
// file is gone. A marker that is gone is not made again.
//
// At the end it removes its marker, or, if it has saved, renames it to "gen-<generation>.<session>", so that an older
// generation that comes later is refused. So a job that only loads leaves nothing.
//
// Jobs have no order: the first save of a job shuts out all others that are open, and a job that is opened later takes
// the directory over with its first save. So a job that only loads takes it from no other.
//
// Only empty regular files are removed as markers, and only regular files as temporary files, by their exact names. A
// file that cannot be removed, as another user's in a sticky directory, stays, and its owner is not shut out.
//
// Gaps:
// - On a network file system a host that lists the directory from its cache may miss a marker or a temporary file. A
//   save that has looked for its marker just before may then still be renamed, to a whole checkpoint.
// - While a marker cannot be made (a full or read-only file system), older generations that are opened are not refused.
// - An older generation may make a new Checkpointer and save after all of the newer generation's have ended without a
//   save.
// - Two jobs whose first saves are at the same moment may shut out each other. Both then fail.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "ddp/error.hpp"

namespace ddp::detail {

/// The generation that a marker or a temporary file belongs to.
struct Owner {
    std::string session;  ///< random_id() of the job; empty: not started by ddprun, so its generations have no order
    std::int64_t generation = 0;
    [[nodiscard]] bool is_older_than(const Owner& other) const {
        return session == other.session && generation < other.generation;
    }
};

class SaveFence {
public:
    SaveFence(std::filesystem::path directory, Owner self) : directory_(std::move(directory)), self_(std::move(self)) {}
    ~SaveFence();
    SaveFence(const SaveFence&) = delete;
    SaveFence& operator=(const SaveFence&) = delete;

    /// Shuts out older generations of this job. Without a session there is no fence, and it only removes the temporary
    /// files that have no session either. Throws Error{Superseded} if a newer generation has done this, and Error{Io},
    /// but if the directory is full or read-only, which is an error only for a save, prints a warning.
    void open();
    /// Shuts out other jobs, too, at the first call. Throws Error{Superseded} if the marker is gone, and Error{Io},
    /// also if the marker still cannot be made. Does nothing without a session.
    void take_over();

    /// Returns a new name beside `path`: "step-200.safetensors.tmp.<generation>.<session>.<random>", or only with
    /// <random>.
    [[nodiscard]] std::filesystem::path temporary_path(const std::filesystem::path& path) const;
    /// Returns 0 if this generation may commit, else the errno with which its marker cannot be opened.
    [[nodiscard]] int look_for_marker() const;
    /// Throws Error{Superseded}, for the checkpoint that could not be saved, if the marker is gone.
    void refuse_superseded(const std::filesystem::path& checkpoint) const;

private:
    using IsOlder = std::function<bool(const Owner&)>;

    [[nodiscard]] bool is_fenced() const { return !self_.session.empty(); }
    [[nodiscard]] int make_marker();
    [[nodiscard]] Error error_of_marker(int error) const;
    void claim(const IsOlder& is_older) const;
    void remove_temporaries(const IsOlder& is_older) const;
    void refuse_if_marker_is_gone(std::string_view what) const;
    [[noreturn]] void fail_superseded(std::string_view what) const;

    std::filesystem::path directory_;
    Owner self_;
    std::filesystem::path marker_;  ///< empty: not made
    bool taken_over_ = false;
};

}  // namespace ddp::detail

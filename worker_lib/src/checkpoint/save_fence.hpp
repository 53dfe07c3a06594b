#pragma once
// SaveFence: lets only the newest generation of a job commit to a checkpoint directory. Rank 0 only.
//
// Rank 0 of a generation makes a marker, the empty file "gen-<generation>.<session>". Then it removes what older
// generations have there: first their markers, then their temporary files. A save writes its temporary file, looks for
// its marker and renames. So it either commits before the newer generation goes on, which then finds the checkpoint, or
// fails because its marker or its temporary file is gone.
//
// One gap is left on network file systems: a host that lists the directory from its cache may miss a temporary file.
// A save that has looked for its marker just before may then still be renamed, to a whole checkpoint.
//
// Generations of different jobs have no order: the job whose first save is later takes the directory over. So a job
// that only loads takes it from no other.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::detail {

/// The generation that a marker or a temporary file belongs to.
struct Owner {
    std::string session;  ///< random, of the job; empty: not started by ddprun, so its generations have no order
    std::int64_t generation = 0;
    [[nodiscard]] bool is_older_than(const Owner& other) const {
        return session == other.session && generation < other.generation;
    }
};

class SaveFence {
public:
    SaveFence(std::filesystem::path directory, Owner self) : directory_(std::move(directory)), self_(std::move(self)) {}

    /// Shuts out older generations of this job. Without a session there is no fence, and it only removes the temporary
    /// files that have no session either. Throws Error{Superseded} if a newer generation has done this, and Error{Io}.
    void open();
    /// Shuts out other jobs, too, at the first call. Throws as open(). Does nothing without a session.
    void take_over();

    /// Returns a new name beside `path`: "step-200.ckpt.tmp.<generation>.<session>.<random>", or only with <random>.
    [[nodiscard]] std::filesystem::path temporary_path(const std::filesystem::path& path) const;
    /// Returns 0 if this generation may commit, else the errno with which its marker cannot be opened.
    [[nodiscard]] int look_for_marker() const;
    /// Throws Error{Superseded}, for the checkpoint that could not be saved, if the marker is gone.
    void refuse_superseded(const std::filesystem::path& checkpoint) const;

private:
    using IsOlder = std::function<bool(const Owner&)>;

    [[nodiscard]] bool is_fenced() const { return !self_.session.empty(); }
    [[nodiscard]] std::filesystem::path marker_path() const;
    void claim(const IsOlder& is_older);
    void remove_temporaries(const IsOlder& is_older) const;
    void remove(const std::string& name) const;
    [[noreturn]] void fail_superseded(std::string_view what) const;

    std::filesystem::path directory_;
    Owner self_;
    bool taken_over_ = false;
};

}  // namespace ddp::detail

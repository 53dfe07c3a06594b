#pragma once
// DirectoryPoint: a meeting point in a directory of a shared file system. A value is a file whose name ends in its
// version; link(2) decides which of several claims wins, on NFS as well. docs/design/018 has the layout and its races.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "launcher/meeting/meeting_point.hpp"

namespace ddprun::launcher {

/// A MeetingPoint in one directory. Each call has `limit` to complete, on a thread of its own: a file system that hangs
/// is an error, and leaves the thread behind. A directory that is absent at the first read() is kUsage.
class DirectoryPoint final : public MeetingPoint {
public:
    /// Whether a name may come again, so that its last version must remain.
    enum class Names { kMayRecur, kUsedOnce };

    /// `remedy` is what messages say to pass instead of the directory; empty: it is that of --rdzv-dir.
    DirectoryPoint(std::filesystem::path directory, std::chrono::milliseconds limit, Names names = Names::kMayRecur,
                   std::string remedy = {})
        : directory_(std::move(directory)), limit_(limit), names_(names), remedy_(std::move(remedy)) {}

    [[nodiscard]] Result<std::optional<Published>> read(const std::string& name) override;
    [[nodiscard]] Result<Claim> claim(const std::string& name, const std::string& value,
                                      const std::optional<Published>& replaces) override;
    [[nodiscard]] Result<void> withdraw(const std::string& name, const Published& mine) override;
    [[nodiscard]] std::string where(const std::string& name) const override;
    [[nodiscard]] std::string removal(const std::string& name) const override;
    [[nodiscard]] std::string elsewhere() const override;

private:
    std::filesystem::path directory_;
    std::chrono::milliseconds limit_;
    Names names_;
    std::string remedy_;
    bool was_there_ = false;  ///< the directory, at an earlier read()
};

/// Returns `name` with every byte but letters, digits, '-' and '_' as %HH, and "/" as "-" ("ddprun/x" is
/// "ddprun-x"). A long result is cut and gets a hash. Different names of the form "ddprun/ID" stay different. Pure.
[[nodiscard]] std::string as_entry_name(std::string_view name);

/// Returns the error for a link(2) in `directory` that failed with `errno_value`. `remedy` is that of DirectoryPoint.
/// Pure.
[[nodiscard]] Error link_error(const std::filesystem::path& directory, int errno_value, std::string_view remedy = {});

}  // namespace ddprun::launcher

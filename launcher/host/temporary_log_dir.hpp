#pragma once
// TemporaryLogDir: owns the folder for the log files of a job whose user has named none. Owned by launch(), in the
// process that ends last on this machine. Main thread only.

#include <string>
#include <utility>

#include "common/error.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

class TemporaryLogDir {
public:
    TemporaryLogDir() = default;  ///< no folder
    /// Makes a folder below TMPDIR, or below /tmp if that cannot be. Errors: of mkdtemp(3), with what to do.
    [[nodiscard]] static Result<TemporaryLogDir> make(const Environment& environment);
    /// Removes the folder if it is empty.
    ~TemporaryLogDir();
    TemporaryLogDir(TemporaryLogDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    TemporaryLogDir& operator=(TemporaryLogDir&& other) noexcept {
        path_.swap(other.path_);
        return *this;
    }

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Ends the ownership: removes the folder with all files if `success`, else only if it is empty. Returns whether
    /// files are left there.
    bool release(bool success);

private:
    std::string path_;  ///< empty: no folder
};

}  // namespace ddprun::launcher

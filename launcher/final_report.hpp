#pragma once
// Collects the final reports of emulated nodes, so that one is printed once, whichever nodes are killed. Owned by the
// launcher of the nodes; each node inherits the descriptor.

#include <string>

#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// FinalReport: owns a file in memory, open for appending. Every node that knows how the job ended appends a text that
/// ends with a zero byte. If the system refuses such a file, only the exit code is reported.
class FinalReport {
public:
    FinalReport();

    /// Returns the descriptor that the nodes inherit (not close-on-exec); -1: there is no file.
    [[nodiscard]] int fd() const { return file_.get(); }
    /// Returns the last whole text that a node has left; empty: there is none.
    [[nodiscard]] std::string read() const;

private:
    UniqueFd file_;
};

/// Returns the last of `texts`, each of which ends with a zero byte. Empty: there is no whole one. Pure.
[[nodiscard]] std::string last_report(const std::string& texts);

}  // namespace ddprun::launcher

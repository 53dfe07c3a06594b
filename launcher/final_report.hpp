#pragma once
// The final report of an emulated job, which is printed once, whichever of its nodes is killed. Owned by the launcher
// of the nodes; each node inherits the descriptor.

#include <string>

#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// A file in memory, open for appending. Every node that knows how the job ended appends a text that ends with a zero
/// byte. Without such a file (the system refused it) the exit code has to do.
class FinalReport {
public:
    FinalReport();

    /// For the nodes, not close-on-exec; -1: there is no file.
    [[nodiscard]] int fd() const { return file_.get(); }
    /// Returns the last whole text that a node has left; empty: there is none.
    [[nodiscard]] std::string read() const;

private:
    UniqueFd file_;
};

/// Pure: returns the last of `texts`; each ends with a zero byte. Empty: there is no whole one.
[[nodiscard]] std::string last_report(const std::string& texts);

}  // namespace ddprun::launcher

#pragma once
// Collects the final reports of emulated nodes, so that one is printed once, whichever nodes are killed. Owned by the
// launcher of the nodes; each node inherits the descriptor.

#include <boost/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/system/unique_fd.hpp"

namespace ddprun::launcher {

/// The final reports of the nodes.
struct NodesReport {
    std::string text;                                    ///< to be printed; empty: no node has left one
    std::string goodput;                                 ///< one line; empty: no node has left one
    boost::json::object report;                          ///< of --report; empty: no node has left one
    std::map<std::string, int> exit_codes;               ///< of the nodes that have reported their end, by name
    std::map<std::string, int> generations;              ///< of the latest workers of each node that had some, by name
    std::map<std::string, std::int64_t> stops_began_at;  ///< when the stop of these began, in ticks of Clock, by name
};

/// FinalReport: owns a file in memory, open for appending. Every node appends a record (StatusReporter::report_end())
/// that ends with a zero byte. If the system refuses such a file, only the exit code is reported.
class FinalReport {
public:
    FinalReport();

    /// Returns the descriptor that the nodes inherit (not close-on-exec); -1: there is no file.
    [[nodiscard]] int fd() const { return file_.get(); }
    /// Returns the final reports that the nodes have written by now.
    [[nodiscard]] NodesReport read() const;

private:
    UniqueFd file_;
};

/// Returns the last text, and the report of the culprit's node, else the last one. `records`: those of all nodes, of
/// which the last may not be whole. Pure.
[[nodiscard]] NodesReport nodes_report(std::string_view records);

}  // namespace ddprun::launcher

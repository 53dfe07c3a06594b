#include "ctl/status_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "common/text/escape.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace ddprun::ctl {
namespace {

using namespace protocol;

/// A host name that is longer does not widen the column.
constexpr std::size_t kMaxWidth = 40;

using Row = std::array<std::string, 4>;

Row row_of(const NodeStatus& node) {
    if (!node.node_rank) return {"-", escape_controls(node.host), "-", escape_controls(node.state)};
    return {fmt::format("{}", number(*node.node_rank)), escape_controls(node.host),
            range_of(node.rank_base, node.rank_base + node.slots - 1), escape_controls(node.state)};
}

std::string table_of(const std::vector<Row>& rows) {
    std::array<std::size_t, 4> widths{};
    for (const Row& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::clamp(row[i].size(), widths[i], kMaxWidth);
    std::string text;
    for (const Row& row : rows)
        text += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2], widths[2],
                            row[3]);
    return text;
}

std::string nodes_text(const std::vector<NodeStatus>& nodes, bool all) {
    if (nodes.empty()) return "";
    const auto others = static_cast<std::size_t>(std::ranges::count(nodes, false, &NodeStatus::fine));
    std::size_t room = all ? nodes.size() : kMaxRows - std::min(kMaxRows, others);  // for those that are fine
    std::vector<Row> rows{{"node", "host", "ranks", "state"}};
    for (const NodeStatus& node : nodes) {
        if (node.fine && room == 0) continue;
        if (node.fine) --room;
        rows.push_back(row_of(node));
    }
    const std::size_t left_out = nodes.size() + 1 - rows.size();
    std::string text = table_of(rows);
    if (left_out > 0) text += fmt::format("  and {} that need no attention (--all)\n", counted(left_out, "more node"));
    return text;
}

std::string decisions_text(const std::vector<Decision>& decisions, int wanted) {
    const std::size_t shown = std::min(decisions.size(), static_cast<std::size_t>(wanted));
    if (shown == 0) return "";
    std::string text = "decisions, the newest last:\n";
    for (const Decision& decision : std::span(decisions).last(shown))
        text += fmt::format("  {:>8} ago  {}\n", duration_text(decision.ago), escape_controls(decision.text));
    return text;
}

}  // namespace

std::string status_text(const Status& status, const StatusOptions& options) {
    std::string job = fmt::format("job '{}'", status.run_id);
    if (!status.command.empty()) job += fmt::format(" ({})", status.command);
    if (number(status.generation) > 0) job += fmt::format(", generation {}", number(status.generation));
    return fmt::format("{}\n{}\n{}{}", escape_controls(job), escape_controls(status.state),
                       nodes_text(status.nodes, options.all), decisions_text(status.decisions, options.decisions));
}

}  // namespace ddprun::ctl

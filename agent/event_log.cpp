#include "agent/event_log.hpp"

#include <chrono>
#include <utility>
#include <variant>

#include "agent/job_report.hpp"
#include "agent/json_values.hpp"

namespace ddprun::agent {

namespace json = boost::json;

void EventLog::record(const Event& event, const worker_group::State& state) {
    if (!file_) return;
    std::optional<json::object> object = describe(event, state, config_);
    if (std::holds_alternative<GroupReaped>(event.what) && history_.latest() != nullptr)
        (*object)["phases"] = phases_json(history_.latest()->time);
    append(object, event.now);
}

void EventLog::record(const Action& action, const worker_group::State& state, const std::string& reason,
                      TimePoint now) {
    if (!file_) return;
    if (const auto* wait = std::get_if<PrintWait>(&action)) {
        if (std::exchange(waits_for_, wait->reason) == wait->reason) return;
    }
    if (std::holds_alternative<StartWorkers>(action)) waits_for_.clear();
    std::optional<json::object> object = describe(action, state, reason, config_);
    if (std::holds_alternative<Finish>(action)) add_account(*object, history_.time(), history_.names_steps());
    append(object, now);
}

void EventLog::record_start(const std::vector<pid_t>& pids, TimePoint now) {
    if (file_) append(describe_start(pids, history_, config_), now);
}

void EventLog::close() {
    if (dropped_ > 0) write({{"event", "lines_dropped"}}, Clock::now());
    file_.close();
}

void EventLog::append(const std::optional<json::object>& object, TimePoint at) {
    if (!object) return;
    if (file_.backlogged())
        ++dropped_;
    else
        write(*object, at);
}

void EventLog::write(const json::object& object, TimePoint at) {
    const auto ago = std::chrono::duration_cast<std::chrono::system_clock::duration>(Clock::now() - at);
    const GroupTimes* const group = history_.latest();
    json::object line{{"version", kReportVersion},
                      {"time", utc_text(std::chrono::system_clock::now() - ago)},
                      {"ms", milliseconds_json(at - began_)},
                      {"host", text_json(config_.node_name)},
                      {"run_id", text_json(history_.run_id())},
                      {"node_rank", nullptr},
                      {"generation", nullptr}};
    if (group != nullptr) {
        line["node_rank"] = number(group->assignment.node_rank);
        line["generation"] = number(group->assignment.generation);
    }
    for (const auto& member : object) line[member.key()] = member.value();
    if (const std::size_t dropped = std::exchange(dropped_, 0); dropped > 0) line["lines_dropped"] = dropped;
    file_.write(json_text(line) + "\n");
}

}  // namespace ddprun::agent

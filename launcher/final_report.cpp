#include "launcher/final_report.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "launcher/report_files.hpp"

namespace ddprun::launcher {

FinalReport::FinalReport() : file_(::memfd_create("ddprun-final-report", 0)) {
    if (file_) ::fcntl(file_.get(), F_SETFL, O_APPEND);
}

NodesReport FinalReport::read() const {
    std::string records;
    std::array<char, 4096> piece{};
    ssize_t got = 0;
    while ((got = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(records.size()))) > 0) {
        records.append(piece.data(), static_cast<std::size_t>(got));
    }
    return nodes_report(records);
}

namespace {

/// Returns whether the report is that of the culprit's node, which alone has its error file and saw the failure begin.
bool is_of_culprit(const boost::json::object& report) {
    const boost::json::value* const host = report.if_contains("host");
    for (const char* const member : {"culprit", "first_victim"}) {
        const boost::json::value* const worker = report.if_contains(member);
        if (host != nullptr && worker != nullptr && worker->is_object() && worker->get_object().contains("host"))
            return worker->get_object().at("host") == *host;
    }
    return false;
}

/// Replaces `text` by the one in `member` of a node's record, if there is one.
void note_text(const boost::json::object& record, const char* member, std::string& text) {
    const boost::json::value* const found = record.if_contains(member);
    if (found != nullptr && found->is_string() && !found->get_string().empty())
        text.assign(found->get_string().data(), found->get_string().size());
}

/// Adds the number in `member` of a node's record to `numbers`, which has them by the node's name.
template <typename Number>
void note_number(const boost::json::object& record, const char* member, std::map<std::string, Number>& numbers) {
    const boost::json::value* const node = record.if_contains("node");
    const boost::json::value* const number = record.if_contains(member);
    if (node != nullptr && node->is_string() && number != nullptr && number->is_int64())
        numbers[node->get_string().c_str()] = static_cast<Number>(number->get_int64());
}

}  // namespace

NodesReport nodes_report(std::string_view records) {
    NodesReport all;
    for (std::size_t end = 0; (end = records.find('\0')) != records.npos; records.remove_prefix(end + 1)) {
        const boost::json::object record = parse_report_object(records.substr(0, end));  // empty if not written whole
        note_text(record, "text", all.text);
        note_text(record, "goodput", all.goodput);
        note_number(record, "exit_code", all.exit_codes);
        note_number(record, "generation", all.generations);
        note_number(record, "stop_began_at", all.stops_began_at);
        const boost::json::value* const report = record.if_contains("report");
        if (report == nullptr || !report->is_object()) continue;
        if (!is_of_culprit(all.report) || is_of_culprit(report->get_object())) all.report = report->get_object();
    }
    return all;
}

}  // namespace ddprun::launcher

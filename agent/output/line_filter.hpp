#pragma once
// LineFilter: copies the lines of a stream that contain one of some texts to a file, whole and with a label: several
// streams write to that file. Owned by WorkerStream; one thread.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/output/line_buffer.hpp"
#include "agent/output/log_writer.hpp"

namespace ddprun::agent {

class LineFilter {
public:
    LineFilter(std::vector<std::string> texts, std::string label, LogFile file)
        : texts_(std::move(texts)), label_(std::move(label)), file_(std::move(file)) {}

    /// `stamp` begins the copies, before the label.
    void feed(std::string_view bytes, std::string_view stamp = {});
    /// Copies the last line, which has no end, if it matches, and closes the file.
    void finish();
    [[nodiscard]] bool backlogged() const { return file_.backlogged(); }

private:
    void take(const Segment& segment);
    void end_line();

    std::vector<std::string> texts_;
    std::string label_;
    std::string stamp_;
    LogFile file_;
    LineBuffer segments_{LineBuffer::Progress::kHold};
    std::string line_;  ///< the line so far, at most kMaxLineBytes; of a progress bar its latest state
};

}  // namespace ddprun::agent

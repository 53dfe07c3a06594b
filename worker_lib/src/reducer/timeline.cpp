#include "worker_lib/src/reducer/timeline.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>

#include "common/error.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {
namespace {

double to_us(auto time) { return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count(); }

}  // namespace

std::filesystem::path timeline_file(const std::filesystem::path& file, int rank) {
    std::filesystem::path name = file.stem();
    name += fmt::format(".rank-{}", rank);
    name += file.extension();
    return file.parent_path() / name;
}

std::shared_ptr<Timeline> Timeline::from_environment(int rank) {
    const char* file = std::getenv("DDP_TIMELINE");
    if (file == nullptr || *file == '\0') return nullptr;
    if (std::filesystem::is_directory(file))  // the rank's file would lie beside it
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("DDP_TIMELINE: '{}' is a directory. Name a file, such as '{}'", file,
                                (std::filesystem::path(file) / "timeline.json").string()));
    // All reducers of a process share it, also those that follow one another. Never destroyed, because a reducer may
    // end during the exit of the process.
    static ddprun::Mutex mutex;
    static auto& all GUARDED_BY(mutex) = *new std::map<std::filesystem::path, std::shared_ptr<Timeline>>;
    const std::filesystem::path own = timeline_file(file, rank);
    const ddprun::Lock lock(mutex);
    auto& shared = all[own];
    if (!shared || !std::filesystem::exists(own)) shared = std::make_shared<Timeline>(own, rank);
    return {shared.get(), [shared](Timeline* timeline) { timeline->flush(); }};
}

Timeline::Timeline(const std::filesystem::path& file, int rank)
    : rank_(rank),
      offset_us_(to_us(std::chrono::system_clock::now()) - to_us(ddprun::Clock::now())),
      file_(std::fopen(file.c_str(), "we"), &std::fclose) {
    if (!file_) {
        const auto error = ddprun::system_error(fmt::format("DDP_TIMELINE: cannot write '{}'", file.string()), errno);
        throw Error(ErrorCode::System,
                    error.message + ". Name a file in a directory that exists and is writable, or unset the variable");
    }
    // Viewers accept an array without its end, so the file of a rank that is killed now can be read, too.
    write(fmt::format(R"([{{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})", rank_, rank_));
}

int Timeline::add_row() {
    const int row = [this] {
        const ddprun::Lock lock(mutex_);
        return rows_++;
    }();
    write(
        fmt::format(",\n"
                    R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"reducer {}"}}}})",
                    rank_, row, row));
    return row;
}

void Timeline::span(int row, std::string_view name, ddprun::TimePoint begin, ddprun::TimePoint end) {
    const double start = microseconds(begin);
    write(
        fmt::format(",\n"
                    R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                    name, rank_, row, start, microseconds(end) - start));
}

void Timeline::bucket(const Bucket& what, ddprun::TimePoint begin, ddprun::TimePoint end) {
    // Viewers connect events of one id, and put events of one name into one line.
    const std::string suffix = what.row == 0 ? "" : fmt::format(" of reducer {}", what.row);
    const auto half = [&](char phase, ddprun::TimePoint time) {
        return fmt::format(
            ",\n"
            R"({{"ph":"{}","cat":"bucket","name":"bucket {}{}","id":"{}.{}.{}","pid":{},"tid":{},"ts":{:.3f},)"
            R"("args":{{"step":{},"bytes":{}}}}})",
            phase, what.index, suffix, what.row, what.step, what.index, rank_, what.row, microseconds(time), what.step,
            what.bytes);
    };
    write(half('b', begin) + half('e', end));
}

/// Writes the array's end, which the next event overwrites.
void Timeline::flush() {
    constexpr std::string_view kEnd = "\n]\n";
    const ddprun::Lock lock(mutex_);
    std::fwrite(kEnd.data(), 1, kEnd.size(), file_.get());
    std::fflush(file_.get());
    std::fseek(file_.get(), -static_cast<long>(kEnd.size()), SEEK_CUR);
}

double Timeline::microseconds(ddprun::TimePoint time) const { return to_us(time) + offset_us_; }

/// Appends `event`. Write errors are ignored: the training goes on, and the file may be incomplete.
void Timeline::write(const std::string& event) {
    const ddprun::Lock lock(mutex_);
    std::fwrite(event.data(), 1, event.size(), file_.get());
}

TimelineRow TimelineRow::from_environment(int rank) {
    TimelineRow row;
    row.timeline_ = Timeline::from_environment(rank);
    if (row.timeline_) row.row_ = row.timeline_->add_row();
    return row;
}

void TimelineRow::backward(bool sync, ddprun::TimePoint began, ddprun::TimePoint wait_began,
                           ddprun::TimePoint ended) const {
    if (!timeline_) return;
    timeline_->span(row_, sync ? "backward" : "backward without sync", began, wait_began);
    if (sync) timeline_->span(row_, "wait", wait_began, ended);
    timeline_->flush();
}

void TimelineRow::draw_when_done(Work& work, Timeline::Bucket what, ddprun::TimePoint launched) const {
    what.row = row_;
    work.then([timeline = timeline_, what, launched](auto) { timeline->bucket(what, launched, ddprun::Clock::now()); });
}

}  // namespace ddp::detail

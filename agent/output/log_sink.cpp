#include "agent/output/log_sink.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

namespace ddprun::agent {
namespace {

class Sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
    Sink(Console& console, LineStart start) : console_(console) {
        set_pattern_(std::string(log_pattern(start)) + "%v");
    }

private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        console_.write(Console::Stream::kErr, Console::kAgent, {{line.data(), line.size()}, true});
    }
    void flush_() override {}

    Console& console_;
};

}  // namespace

ConsoleLog::ConsoleLog(Console& console, LineStart start) {
    auto& sinks = spdlog::default_logger()->sinks();
    before_ = std::exchange(sinks, {std::make_shared<Sink>(console, start)});
}

ConsoleLog::~ConsoleLog() { spdlog::default_logger()->sinks() = std::move(before_); }

}  // namespace ddprun::agent
